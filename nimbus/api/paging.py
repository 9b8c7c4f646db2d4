"""Lists in pages: `?limit=&cursor=`, answered with `next_cursor` and `at_least`."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from datetime import UTC
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from nimbus.api.problems import ObjectNotFoundError, form
from nimbus.api.requests import BOUND_FORMS, BoundText, PipelineNameText
from nimbus.definition.intervals import bound_of
from nimbus.domain import ids
from nimbus.domain.pipelines.filters import Filter, Parameter, TimeSpan
from nimbus.domain.runs.run import RunState

T = TypeVar("T")
Key = tuple[str | int, ...]
MAX_ROWS = 500

CursorText = Annotated[
    str | None,
    Query(max_length=1000, pattern=r"^[A-Za-z0-9_-]+$", description="`next_cursor` of the answer before."),
]


def unknown_cursor() -> ObjectNotFoundError:
    """The error for a cursor that does not belong to this list."""
    return ObjectNotFoundError(
        "unknown_cursor", "the cursor is none that this list has given: begin without one."
    )


class ListPage(NamedTuple, Generic[T]):
    """A page of a list."""

    rows: list[T]
    next_cursor: str | None
    at_least: int

    @property
    def rest(self) -> dict[str, Any]:
        """The fields of `PageModel`."""
        return {"next_cursor": self.next_cursor, "at_least": self.at_least}


class PageQuery:
    """The requested page of a list. Without a limit: the whole list."""

    def __init__(
        self, limit: Annotated[int | None, Query(ge=1, le=MAX_ROWS)] = None, cursor: CursorText = None
    ) -> None:
        self.limit, self.after = limit, decoded(cursor)

    def page(self, rows: Iterable[T], key: Callable[[T], Key], *, newest_first: bool = False) -> ListPage[T]:
        """Order rows by a unique key, and cut out the page.

        Raises ObjectNotFoundError: the cursor belongs to another list.
        """
        pairs = sorted(((key(row), row) for row in rows), key=lambda pair: pair[0], reverse=newest_first)
        if self.after is not None:
            try:
                pairs = [
                    pair for pair in pairs if (pair[0] < self.after if newest_first else pair[0] > self.after)
                ]
            except TypeError as exc:
                raise unknown_cursor() from exc
        shown = pairs if self.limit is None else pairs[: self.limit]
        more = len(shown) < len(pairs)
        return ListPage([row for _, row in shown], encoded(shown[-1][0]) if more else None, len(pairs))


Paging = Annotated[PageQuery, Depends()]


def encoded(key: Key) -> str:
    """A cursor after the row with this key."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def decoded(cursor: str | None) -> Key | None:
    """The key in a cursor. Raises ObjectNotFoundError if it is not valid."""
    if cursor is None:
        return None
    try:
        position: Any = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        json.dumps(position, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except (ValueError, RecursionError) as exc:  # binascii.Error and UnicodeError are a ValueError
        raise unknown_cursor() from exc
    if not isinstance(position, list) or not all(isinstance(part, str | int) for part in position):
        raise unknown_cursor()
    return tuple(position)


TagText = Annotated[str, form(f"^{ids.NAME_PATTERN.pattern}$", ids.NAME_FORM)]
OwnerText = Annotated[str, Field(max_length=200, description="A name or a team; `-`: nobody.")]
_Parameter = Annotated[
    str, form(r"^[a-zA-Z][a-zA-Z0-9_]{0,62}=.*$", "NAME=VALUE, such as month=3", max_length=1000)
]
_Bound = Annotated[
    BoundText | None,
    BeforeValidator(lambda value: value or None),
    WithJsonSchema({"anyOf": [*BOUND_FORMS, {"type": "string", "const": ""}]}),
]


class Where(BaseModel):
    """The filter of a list or a selection of runs. Days are in UTC, and included; times have an offset."""

    model_config = ConfigDict(extra="ignore")

    pipeline: PipelineNameText | None = None
    tag: TagText | None = Field(None, description="Only of pipelines with this tag.")
    owner: OwnerText | None = None
    state: RunState | None = None
    first: _Bound = Field(None, alias="from", description="Only runs that were created then or later.")
    last: _Bound = Field(None, alias="to", description="Only runs that were created until then.")
    logical_from: _Bound = Field(None, description="Only runs whose logical date is then or later.")
    logical_to: _Bound = Field(None, description="Only runs whose logical date is not later.")
    parameter: list[_Parameter] = Field([], max_length=10, description="`NAME=VALUE`: only runs with it.")

    @property
    def filter(self) -> Filter:
        """What is asked."""
        return Filter(
            pipeline=self.pipeline,
            tag=self.tag,
            owner=self.owner,
            state=self.state,
            created=_span(self.first, self.last),
            logical=_span(self.logical_from, self.logical_to),
            parameters=tuple(Parameter(*pair.split("=", 1)) for pair in self.parameter),
        )


def _span(first: str | None, last: str | None) -> TimeSpan:
    return TimeSpan(
        None if first is None else bound_of(first, UTC),
        None if last is None else bound_of(last, UTC, is_last=True),
    )
