"""Bodies of the API's writes, checked here and then trusted.

Unknown keys are refused, so that a mistyped `paramters` does not become a silent default.
"""

from __future__ import annotations

import json
import re
from datetime import MAXYEAR, UTC, datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import to_jsonable_python

from nimbus.api.problems import form
from nimbus.definition.intervals import bound_of
from nimbus.domain import ids
from nimbus.domain.data.publications import KEY_PATTERN, MAX_VALUE_BYTES, interval_text
from nimbus.domain.errors import RefusedError
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.result import ResultError, check_levels

ReasonText = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500, pattern=r"\S")
]


def in_utc(value: datetime) -> datetime:
    """A time of a request, in UTC. Raises ValueError without an offset, or at an end of the calendar."""
    if value.tzinfo is None:
        raise ValueError("needs an offset, such as 2026-01-31T06:00:00Z or +02:00")
    # Times at the ends of the calendar have no value in some time zones.
    if not 1 < value.year < MAXYEAR:
        raise ValueError(f"must be in the years 2 to {MAXYEAR - 1}")
    return value.astimezone(UTC)


def _text(value: Any) -> Any:
    """Refuse numbers, which Pydantic would read as seconds since 1970."""
    if isinstance(value, int | float):
        raise ValueError("must be a text, such as 2026-01-31T06:00:00Z")  # noqa: TRY004 - what pydantic turns into a refusal
    return value


Moment = Annotated[datetime, BeforeValidator(_text), AfterValidator(in_utc)]
"""A time with its offset, in UTC."""


def _storable(parameters: dict[str, Any]) -> dict[str, Any]:
    """Refuse values that the command's record cannot store: Python's `json` reads more than JSON."""
    try:
        json.dumps(to_jsonable_python(parameters), allow_nan=False, ensure_ascii=False).encode()
    except ValueError as exc:
        raise ValueError(f"cannot be stored as JSON: {exc}") from exc
    return parameters


def _small(value: Any) -> Any:
    """Refuse values that versions of datasets, which are kept together, have no room for."""
    if len(json.dumps(_storable({"": value}))) > MAX_VALUE_BYTES:
        raise ValueError(f"takes more than {MAX_VALUE_BYTES} bytes as JSON")
    try:
        check_levels(value)
    except ResultError as exc:
        raise ValueError(str(exc)) from exc
    return value


def whole(value: Any) -> Any:
    """The value as an integer if it is whole: in JSON, 3.0 is a whole number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _matching(pattern: re.Pattern[str]) -> dict[str, str]:
    """The JSON schema of a text that a function checks."""
    return {"type": "string", "pattern": f"^{pattern.pattern}$"}


_NAME = AfterValidator(ids.pipeline_name), WithJsonSchema(_matching(ids.NAME_PATTERN))
PipelineNameText = Annotated[ids.PipelineName, *_NAME]
TaskNameText = Annotated[ids.TaskName, *_NAME]
DatasetNameText = Annotated[ids.DatasetName, *_NAME]
VariableNameText = Annotated[
    str, AfterValidator(ids.variable_name), WithJsonSchema(_matching(ids.VARIABLE_PATTERN))
]
RunIdText = Annotated[ids.RunId, AfterValidator(ids.run_id), WithJsonSchema(_matching(ids.RUN_ID_PATTERN))]
DigestText = Annotated[
    ids.ReleaseDigest, AfterValidator(ids.release_digest), WithJsonSchema(_matching(ids.DIGEST_PATTERN))
]
CommandIdText = Annotated[
    ids.CommandId, AfterValidator(ids.command_id), WithJsonSchema(_matching(ids.COMMAND_ID_PATTERN))
]
FilePathText = Annotated[str, StringConstraints(min_length=1, max_length=1024)]
BackfillIdText = Annotated[
    ids.BackfillId, AfterValidator(ids.backfill_id), WithJsonSchema(_matching(ids.BACKFILL_ID_PATTERN))
]

WorkerIdText = Annotated[ids.WorkerId, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,126}$")]


def _bound(text: str) -> str:
    bound_of(text, UTC)
    return text


BOUND_FORMS = tuple({"type": "string", "format": form, "pattern": "^[1-8]"} for form in ("date", "date-time"))
"""JSON schemas of a `BoundText`."""
BoundText = Annotated[
    str,
    StringConstraints(max_length=40),
    AfterValidator(_bound),
    Field(description="A day in the zone of the pipeline's schedule, or a time with an offset."),
    WithJsonSchema({"anyOf": [*BOUND_FORMS]}),
]


StorableParameters = Annotated[dict[str, Any], AfterValidator(_storable)]


class RequestBody(BaseModel):
    """Base of all bodies: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid")


def _far_from_the_ends(value: datetime) -> datetime:
    """Refuse times from which `last`, `fresh` or `keep`, 10 years at most, lead out of the calendar."""
    if not 1000 <= value.year < 9000:
        raise ValueError("must be in the years 1000 to 8999")
    return value


_Bound = Annotated[
    Moment,
    AfterValidator(_far_from_the_ends),
    WithJsonSchema({"type": "string", "format": "date-time", "pattern": "^[1-8][0-9]{3}-"}),
]


class DataIntervalBody(RequestBody):
    """The data that a run processes."""

    start: _Bound = Field(description="With offset.")
    end: _Bound = Field(description="End, which is excluded.")


def _without_password(uri: str) -> str:
    """Refuse passwords: pages and logs show the URI to all viewers. `abfss://container@host` has none."""
    user, at, _ = re.split("[/?#]", uri.partition("://")[2], maxsplit=1)[0].rpartition("@")
    if at and ":" in user:
        raise ValueError("has a password, and everybody who sees the dataset would see it")
    return uri


class NewVersionBody(RequestBody):
    """Publish a version of a dataset whose data no task made."""

    uri: Annotated[
        str,
        form(r"^[a-z][a-z0-9+.-]*:[!-~]+$", "a URI such as s3://bucket/key, without spaces", max_length=2000),
        AfterValidator(_without_password),
    ] = Field(description="Where readers find the data, such as s3://bucket/key or file:///folder/file.")
    interval: DataIntervalBody | None = Field(None, description="Of a dataset by interval.")
    key: Annotated[str, StringConstraints(pattern=f"^{KEY_PATTERN.pattern}$")] | None = Field(
        None, description="Of a dataset by key."
    )
    digest: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")] | None = Field(
        None,
        description="SHA-256 of the one file or object at the URI. Without it, the version is unverified.",
    )
    value: Annotated[Any, AfterValidator(_small)] = Field(
        None, description=f"What readers get beside the URI: JSON of at most {MAX_VALUE_BYTES} bytes."
    )

    def partition(self) -> str:
        """The partition's name. Raises RefusedError if it is not clear."""
        if self.interval is not None and self.key is not None:
            raise RefusedError("bad_partition", "a version has an interval or a key, not both.")
        if self.interval is None:
            return self.key or ""
        start, end = self.interval.start, self.interval.end
        if end <= start or start.microsecond or end.microsecond:
            raise RefusedError("bad_partition", "the interval must end after its start, in whole seconds.")
        return interval_text(DataInterval(start=start, end=end))


class ReasonBody(RequestBody):
    """The reason of a request, which is stored with it."""

    reason: ReasonText


class WithdrawBody(ReasonBody):
    """Publish the content before the newest version of a partition again."""

    partition: str = Field("", max_length=100, description="As versions name it; empty: the whole.")
    number: StrictInt | None = Field(
        None, ge=1, description="Of the wrong version: nothing is done if another one is the newest."
    )
