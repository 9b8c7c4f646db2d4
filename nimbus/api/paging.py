"""Lists in pages: `?limit=&cursor=`, answered with `next_cursor` and `at_least`."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from fastapi import Depends, Query

from nimbus.api.problems import NotFoundError

T = TypeVar("T")
Key = tuple[str | int, ...]
MOST = 500
"""In one answer."""

CursorText = Annotated[
    str | None,
    Query(max_length=1000, pattern=r"^[A-Za-z0-9_-]+$", description="`next_cursor` of the answer before."),
]


def unknown_cursor() -> NotFoundError:
    """Says that a cursor is none of this list."""
    return NotFoundError("unknown_cursor", "the cursor is none that this list has given: begin without one.")


class Page(NamedTuple, Generic[T]):
    """Some rows of a list."""

    rows: list[T]
    next_cursor: str | None
    at_least: int


class PageQuery:
    """Which page of a list is asked for. Without a limit: all of it."""

    def __init__(
        self, limit: Annotated[int | None, Query(ge=1, le=MOST)] = None, cursor: CursorText = None
    ) -> None:
        self.limit, self.after = limit, decoded(cursor)

    def page(self, rows: Iterable[T], key: Callable[[T], Key], *, newest_first: bool = False) -> Page[T]:
        """Order rows by a key that no two share, and cut the page out.

        Raises:
            NotFoundError: the cursor is one of another list.
        """
        found = sorted(((key(row), row) for row in rows), key=lambda pair: pair[0], reverse=newest_first)
        if self.after is not None:
            try:
                found = [
                    pair for pair in found if (pair[0] < self.after if newest_first else pair[0] > self.after)
                ]
            except TypeError as exc:
                raise unknown_cursor() from exc
        shown = found if self.limit is None else found[: self.limit]
        more = len(shown) < len(found)
        return Page([row for _, row in shown], encoded(shown[-1][0]) if more else None, len(found))


Paging = Annotated[PageQuery, Depends()]


def encoded(key: Key) -> str:
    """A cursor after the row with this key."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def decoded(cursor: str | None) -> Key | None:
    """The key in a cursor. NotFoundError: it is none."""
    if cursor is None:
        return None
    try:
        found: Any = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error) as exc:
        raise unknown_cursor() from exc
    if not isinstance(found, list) or not all(isinstance(part, str | int) for part in found):
        raise unknown_cursor()
    return tuple(found)
