"""What callers may send: bodies of the API's writes, checked here and then trusted.

Unknown keys are refused, so that a mistyped `paramters` is no silent default.
"""

from __future__ import annotations

import json
import re
from datetime import MAXYEAR, UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import to_jsonable_python

from nimbus.definition.intervals import bound_of
from nimbus.domain import ids
from nimbus.domain.pipeline import Priority
from nimbus.domain.settings import LONGEST_VARIABLE

_Reason = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500, pattern=r"\S")
]
_PriorityName = Literal["highest", "high", "medium", "low", "lowest"]


def _priority(value: Any) -> Any:
    """Names only: numbers would tie callers to an order that may get more steps."""
    names = {priority.name.lower(): priority for priority in Priority}
    if isinstance(value, Priority):
        return value
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"is none of {', '.join(names)}")
    return names[value]


def in_utc(value: datetime) -> datetime:
    """A time of a request. ValueError: it has no offset, or is at an end of the calendar."""
    if value.tzinfo is None:
        raise ValueError("needs an offset, such as 2026-01-31T06:00:00Z or +02:00")
    # Times at the ends of the calendar do not exist in every time zone.
    if not 1 < value.year < MAXYEAR:
        raise ValueError(f"must be in the years 2 to {MAXYEAR - 1}")
    return value.astimezone(UTC)


def _text(value: Any) -> Any:
    """Pydantic takes a number for seconds since 1970."""
    if isinstance(value, int | float):
        raise ValueError("must be a text, such as 2026-01-31T06:00:00Z")  # noqa: TRY004 - what pydantic turns into a refusal
    return value


Moment = Annotated[datetime, BeforeValidator(_text), AfterValidator(in_utc)]
"""A time with its offset, in UTC."""


def _storable(parameters: dict[str, Any]) -> dict[str, Any]:
    """Refuse what the command's record could not hold: `json` reads more than JSON."""
    try:
        json.dumps(to_jsonable_python(parameters), allow_nan=False, ensure_ascii=False).encode()
    except ValueError as exc:
        raise ValueError(f"cannot be stored as JSON: {exc}") from exc
    return parameters


def _as_utf8(text: str) -> str:
    text.encode()  # a half of a surrogate pair is refused as any ValueError
    return text


def whole(value: Any) -> Any:
    """For JSON 3.0 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _matching(pattern: re.Pattern[str]) -> dict[str, str]:
    """What the schema shows of a text that a function checks."""
    return {"type": "string", "pattern": f"^{pattern.pattern}$"}


PipelineNameText = Annotated[
    str, AfterValidator(ids.pipeline_name), WithJsonSchema(_matching(ids.NAME_PATTERN))
]
VariableNameText = Annotated[
    str, AfterValidator(ids.variable_name), WithJsonSchema(_matching(ids.VARIABLE_PATTERN))
]
RunIdText = Annotated[str, AfterValidator(ids.run_id), WithJsonSchema(_matching(ids.RUN_ID_PATTERN))]
DigestText = Annotated[str, AfterValidator(ids.release_digest), WithJsonSchema(_matching(ids.DIGEST_PATTERN))]
CommandIdText = Annotated[
    str, AfterValidator(ids.command_id), WithJsonSchema(_matching(ids.COMMAND_ID_PATTERN))
]
FilePathText = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
BackfillIdText = Annotated[
    str, AfterValidator(ids.backfill_id), WithJsonSchema(_matching(ids.BACKFILL_ID_PATTERN))
]


TaskNameText = PipelineNameText
"""They have the same form."""
WorkerIdText = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,126}$")]


def _bound(text: str) -> str:
    bound_of(text, UTC)
    return text


BoundText = Annotated[
    str,
    StringConstraints(max_length=40),
    AfterValidator(_bound),
    Field(description="A day in the zone of the pipeline's schedule, or a time with an offset."),
    WithJsonSchema(
        {"anyOf": [{"type": "string", "format": form, "pattern": "^[1-8]"} for form in ("date", "date-time")]}
    ),
]


StorableParameters = Annotated[dict[str, Any], AfterValidator(_storable)]


class RequestBody(BaseModel):
    """Base of all bodies: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


class ReleaseBody(RequestBody):
    """Make a release known whose files are already in storage."""

    digest: DigestText = Field(description="SHA-256 of the release's manifest.")
    activate: StrictBool = Field(False, description="Make it the active release, too.")


class ActivateBody(RequestBody):
    """Choose the active release."""

    digest: DigestText | None = Field(None, description="Without it: the newest published release.")
    reason: Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)] = Field(
        "", description="Why, for the list of commands; empty: what `X-Nimbus-Reason` says."
    )


class DataIntervalBody(RequestBody):
    """The data that a run stands for."""

    start: Moment = Field(description="With offset.")
    end: Moment = Field(description="It ends before this moment.")


class SelectionBody(RequestBody):
    """Which tasks of a run are run; the others are left out, or reused."""

    scope: Literal["only", "from", "upto"]
    tasks: list[TaskNameText] = Field(min_length=1, max_length=100)
    reuse: RunIdText | None = Field(
        None, description="A run that has ended: its successes stand for tasks that are not selected."
    )


class RerunBody(RequestBody):
    """Run a run again, as a new one."""

    run_id: RunIdText | None = Field(None, description="Of the new run; as in a start.")
    scope: Literal["all", "failed", "only", "from", "upto"]
    tasks: list[TaskNameText] = Field(default_factory=list, max_length=100)
    release: Literal["same", "latest"] = Field("same", description="`latest`: the active one.")
    marks: dict[TaskNameText, Literal["succeeded", "skipped"]] = Field(
        default_factory=dict,
        description="Tasks that count as ended so, without being run. Needs a reason.",
        json_schema_extra={"additionalProperties": False},  # the names have a pattern
    )
    reason: Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)] = ""


class MarkBody(RequestBody):
    """Let a task that waits count as ended."""

    state: Literal["succeeded", "skipped"]
    reason: _Reason


class StartRunBody(RequestBody):
    """Start a run of the active release."""

    pipeline: PipelineNameText
    run_id: RunIdText | None = Field(
        None, description="Give one, and asking again starts nothing twice. Without it the server makes one."
    )
    parameters: StorableParameters = Field(default_factory=dict)
    logical_date: Moment | None = Field(
        None, description="The time the run stands for, with offset. Without it: the time of acceptance."
    )
    data_interval: DataIntervalBody | None = Field(
        None, description="Without it the run has none, and templates that name its start or end refuse it."
    )
    priority: Annotated[Priority, BeforeValidator(_priority, json_schema_input_type=_PriorityName)] | None = (
        Field(None, description="highest, high, medium, low or lowest. Without it: the pipeline's.")
    )
    selection: SelectionBody | None = Field(None, description="Without it all tasks are run.")


class PoolBody(RequestBody):
    """Set the size of a pool."""

    size: Annotated[StrictInt, BeforeValidator(whole)] = Field(
        ge=0, le=1_000_000, description="0: nothing takes of it any more."
    )


class VariableBody(RequestBody):
    """Set a variable of the cluster."""

    value: Annotated[str, Field(max_length=LONGEST_VARIABLE), AfterValidator(_as_utf8)] = Field(
        description="Not a secret: anybody who reaches the API can read it."
    )


class ReasonBody(RequestBody):
    """Why something is asked for; kept where people will look for it."""

    reason: _Reason


class AbdicationBody(ReasonBody):
    """Ask the leader to hand over."""

    to: str = Field(
        "", max_length=253, description="The scheduler that leads next; empty: the next in the queue."
    )


class ApprovalBody(ReasonBody):
    """Approve or reject what a task waits for."""

    approved: StrictBool = Field(True, description="False: rejected; the task fails.")
