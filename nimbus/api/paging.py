"""Lists in pages: `?limit=&cursor=`, answered with `next_cursor` and `at_least`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from fastapi import Depends, Query
from pydantic import BeforeValidator, Field, WithJsonSchema

from nimbus.api.problems import NotFoundError
from nimbus.api.requests import BOUND_FORMS, BoundText
from nimbus.definition.intervals import bound_of
from nimbus.domain import ids
from nimbus.domain.filters import Filter, Parameter

T = TypeVar("T")
Key = tuple[str | int, ...]
MOST = 500
"""Limit of rows in one answer."""

CursorText = Annotated[
    str | None,
    Query(max_length=1000, pattern=r"^[A-Za-z0-9_-]+$", description="`next_cursor` of the answer before."),
]


def unknown_cursor() -> NotFoundError:
    """The error for a cursor that does not belong to this list."""
    return NotFoundError("unknown_cursor", "the cursor is none that this list has given: begin without one.")


class Page(NamedTuple, Generic[T]):
    """A page of a list."""

    rows: list[T]
    next_cursor: str | None
    at_least: int


class PageQuery:
    """The requested page of a list. Without a limit: the whole list."""

    def __init__(
        self, limit: Annotated[int | None, Query(ge=1, le=MOST)] = None, cursor: CursorText = None
    ) -> None:
        self.limit, self.after = limit, decoded(cursor)

    def page(self, rows: Iterable[T], key: Callable[[T], Key], *, newest_first: bool = False) -> Page[T]:
        """Order rows by a unique key, and cut out the page.

        Raises:
            NotFoundError: the cursor belongs to another list.
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
    """The key in a cursor. Raises NotFoundError if it is not valid."""
    if cursor is None:
        return None
    try:
        found: Any = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        json.dumps(found, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except (ValueError, RecursionError) as exc:  # binascii.Error and UnicodeError are a ValueError
        raise unknown_cursor() from exc
    if not isinstance(found, list) or not all(isinstance(part, str | int) for part in found):
        raise unknown_cursor()
    return tuple(found)


class Created(NamedTuple):
    """A filter of lists of runs: when they were created, both times included; None: at any time."""

    since: datetime | None = None
    until: datetime | None = None


_DAY_OF_RUNS = "A day in UTC, or a time with an offset: only runs that were created"
_LOGICAL = "A day in UTC, or a time with an offset: only runs whose logical date is"
TagText = Annotated[str, Field(pattern=f"^({ids.NAME_PATTERN.pattern})?$")]
OwnerText = Annotated[str, Field(max_length=200)]
ParameterText = Annotated[str, Field(max_length=1000, pattern=r"^([a-zA-Z][a-zA-Z0-9_]{0,62}=.*)?$")]
_Bound = Annotated[
    BoundText | None,
    BeforeValidator(lambda value: value or None),
    WithJsonSchema({"anyOf": [*BOUND_FORMS, {"type": "string", "const": ""}]}),
]


def created(
    first: Annotated[_Bound, Query(alias="from", description=f"{_DAY_OF_RUNS} then or later.")] = None,
    last: Annotated[_Bound, Query(alias="to", description=f"{_DAY_OF_RUNS} until its end.")] = None,
) -> Created:
    """The filter of a request."""
    return Created(
        None if first is None else bound_of(first, UTC),
        None if last is None else bound_of(last, UTC, is_last=True),
    )


def chosen(
    tag: Annotated[TagText | None, Query(description="Only of pipelines with this tag.")] = None,
    owner: Annotated[
        OwnerText | None, Query(description="Only of pipelines of it; `-`: of no owner.")
    ] = None,
    first: Annotated[_Bound, Query(alias="logical_from", description=f"{_LOGICAL} then or later.")] = None,
    last: Annotated[_Bound, Query(alias="logical_to", description=f"{_LOGICAL} until its end.")] = None,
    parameter: Annotated[
        list[ParameterText] | None, Query(max_length=10, description="`NAME=VALUE`: only runs with it.")
    ] = None,
) -> Filter:
    """The filter of a request."""
    return filter_of(tag=tag, owner=owner, logical_from=first, logical_to=last, parameters=parameter or ())


def filter_of(
    *,
    tag: str | None,
    owner: str | None,
    logical_from: str | None,
    logical_to: str | None,
    parameters: Iterable[str],
    pipeline: str | None = None,
) -> Filter:
    """A filter from checked texts."""
    return Filter(
        pipeline=pipeline,
        tag=tag or None,
        owner=owner or None,
        first=None if logical_from is None else bound_of(logical_from, UTC),
        last=None if logical_to is None else bound_of(logical_to, UTC, is_last=True),
        parameters=tuple(Parameter(*pair.split("=", 1)) for pair in parameters if pair),
    )


WhereFilter = Annotated[Filter, Depends(chosen)]
CreatedFilter = Annotated[Created, Depends(created)]
