"""What callers may send: bodies of the API's writes, checked here and then trusted.

Unknown keys are refused, so that a mistyped `paramters` is no silent default.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from nimbus.domain import ids
from nimbus.domain.pipeline import Priority

_Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]


def _priority(value: Any) -> Any:
    """Names only: numbers would tie callers to an order that may get more steps."""
    names = {priority.name.lower(): priority for priority in Priority}
    if isinstance(value, Priority):
        return value
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"is none of {', '.join(names)}")
    return names[value]


def _utc(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError("needs an offset, such as 2026-01-31T06:00:00Z or +02:00")
    return value.astimezone(UTC)


PipelineNameText = Annotated[str, AfterValidator(ids.pipeline_name)]
RunIdText = Annotated[str, AfterValidator(ids.run_id)]
DigestText = Annotated[str, AfterValidator(ids.release_digest)]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ReleaseBody(_Body):
    """Make a release known whose files are already in storage."""

    digest: DigestText = Field(description="SHA-256 of the release's manifest.")
    activate: bool = Field(False, description="Make it the active release, too.")


class ActivateBody(_Body):
    """Choose the active release."""

    digest: DigestText | None = Field(None, description="Without it: the newest published release.")


class StartRunBody(_Body):
    """Start a run of the active release."""

    pipeline: PipelineNameText
    run_id: RunIdText | None = Field(
        None, description="Give one, and asking again starts nothing twice. Without it the server makes one."
    )
    parameters: dict[str, Any] = Field(default_factory=dict)
    logical_date: Annotated[datetime, AfterValidator(_utc)] | None = Field(
        None, description="The time the run stands for, with offset. Without it: the time of acceptance."
    )
    priority: Annotated[Priority, BeforeValidator(_priority, json_schema_input_type=str)] | None = Field(
        None, description="highest, high, medium, low or lowest. Without it: the pipeline's."
    )


class ReasonBody(_Body):
    """Why something is asked for; kept where people will look for it."""

    reason: _Reason
