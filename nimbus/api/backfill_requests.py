"""Bodies of requests about backfills."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, Field, StrictBool, StrictInt, WithJsonSchema

from nimbus.api.requests import (
    BackfillIdText,
    BoundText,
    DigestText,
    PipelineNameText,
    RequestBody,
    StorableParameters,
    whole,
)
from nimbus.config.values import parse_duration
from nimbus.definition.backfill_dates import count_dates
from nimbus.definition.intervals import bound_of
from nimbus.domain.backfill import (
    MOST_DATES,
    MOST_PARALLEL,
    BackfillRequest,
    OnFailure,
    Order,
    Reprocess,
)
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.errors import RefusedError

SHORTEST_STEP = timedelta(minutes=1)
LONGEST_STEP = timedelta(days=366)
_Step = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": "^([0-9]{1,8}s|[0-9]{1,6}m|[0-9]{1,4}h|[0-9]{1,3}d)$"}),
]


class BackfillBody(RequestBody):
    """Start runs for the dates of a range."""

    pipeline: PipelineNameText
    first: BoundText = Field(alias="from")
    last: BoundText = Field(alias="to")
    every: _Step | None = Field(
        None, description="Such as 1d, from 1m to 366d: for a pipeline without a schedule."
    )
    max_parallel: Annotated[StrictInt, BeforeValidator(whole)] = Field(1, ge=1, le=MOST_PARALLEL)
    reprocess: Reprocess = Reprocess.MISSING
    order: Order = Order.OLDEST
    on_failure: OnFailure = OnFailure.PAUSE
    as_one_run: StrictBool = False
    parameters: StorableParameters = Field(default_factory=dict)


class BackfillPlanBody(BackfillBody):
    """A backfill to plan, not to create."""

    downstream: StrictBool = Field(
        False, description="Plan backfills of the pipelines that wait for its runs or read its data, too."
    )


class NewBackfillBody(BackfillBody):
    """A backfill with its id."""

    id: BackfillIdText = Field(description="Your own: asking twice with it creates one backfill.")
    release: DigestText | None = Field(None, description="Of all its runs. Without it: the active one.")


def requested(body: BackfillBody, record: PipelineRecord, now: datetime) -> BackfillRequest:
    """The request of a body. Its range ends at the latest now.

    Raises:
        RefusedError: the range has no date, or too many dates.
    """
    schedule = record.profile.schedule
    if body.every is not None and not SHORTEST_STEP <= body.every <= LONGEST_STEP:
        raise RefusedError("bad_every", "`every` must be between 1m and 366d.")
    zone = ZoneInfo("UTC" if schedule is None else schedule.timezone)
    request = BackfillRequest(
        first=bound_of(body.first, zone),
        last=min(bound_of(body.last, zone, is_last=True), now),
        every=body.every,
        max_parallel=body.max_parallel,
        reprocess=body.reprocess,
        order=body.order,
        on_failure=body.on_failure,
        as_one_run=body.as_one_run,
        parameters=body.parameters,
    )
    total = count_dates(schedule, request, MOST_DATES)
    if total < 1:
        raise RefusedError(
            "no_dates", f"pipeline {record.name} has no past date from {body.first} to {body.last}."
        )
    refuse_too_many(record.name, total)
    return replace(request, total=total)


def refuse_too_many(pipeline: str, dates: int) -> None:
    """Raise RefusedError if a range has MOST_DATES dates or more."""
    if dates >= MOST_DATES:
        raise RefusedError(
            "too_many_dates",
            f"the range has {MOST_DATES} dates of {pipeline}, or more: make several of it.",
        )
