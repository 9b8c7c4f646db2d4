"""What the engine's inbox can hold. Past tense: things that have happened elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leader import Leadership
from nimbus.domain.alerts import Claim, Failure
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.drafts import Draft
from nimbus.domain.ids import AttemptId, CommandId, PipelineName, RunId, TaskName
from nimbus.domain.pipeline import PipelineSpec, TaskSpec
from nimbus.domain.waits import Look, Seen
from nimbus.engine.agenda import Subject
from nimbus.engine.refusal import Refusal
from nimbus.engine.state import Built


@dataclass(frozen=True, slots=True)
class Elected:
    """Leadership is confirmed: lock, epoch and guard."""

    leadership: Leadership


@dataclass(frozen=True, slots=True)
class Revoked:
    """Leadership of this epoch is over. Who hands over holds the lock until `heard` is called, or a while."""

    epoch: int
    reason: str
    heard: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class CommandsChanged:
    """Look at the command queue again."""


@dataclass(frozen=True, slots=True)
class WorkersChanged:
    """Look at the workers' registrations again."""


@dataclass(frozen=True, slots=True)
class AttemptChanged:
    """Look at an attempt's slots again."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class ReleasePrepared:
    """A release is on this disk, verified and read; or cannot be."""

    release: ReleaseOf
    result: PipelineSpec | Refusal


@dataclass(frozen=True, slots=True)
class RunBuilt:
    """A run is built; or cannot be, through a fault of its own."""

    subject: Subject
    built: Built


@dataclass(frozen=True, slots=True)
class BuildingFailed:
    """A run could not be built, through no fault of its own."""

    subject: Subject
    draft: Draft
    error: Exception


@dataclass(frozen=True, slots=True)
class TaskRendered:
    """The templates of a ready task are rendered; or cannot be, through a fault of their own."""

    run: RunId
    task: TaskName
    result: TaskSpec | Refusal


@dataclass(frozen=True, slots=True)
class RenderingFailed:
    """The templates of a ready task could not be rendered, through no fault of their own."""

    run: RunId
    task: TaskName
    error: Exception


@dataclass(frozen=True, slots=True)
class DataSeen:
    """Somebody looked whether data is there."""

    look: Look
    seen: Seen


@dataclass(frozen=True, slots=True)
class RunArchived:
    """History has a run, and all that is told of it is sent or given up."""

    run: RunId


@dataclass(frozen=True, slots=True)
class OutcomesArchived:
    """History has the outcomes of these commands; of none: they could not be stored, through no outage."""

    commands: tuple[CommandId, ...]


@dataclass(frozen=True, slots=True)
class TermsArchived:
    """History has the terms of these epochs."""

    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PurgeStored:
    """Storage keeps what a command asks for; or it is refused."""

    command: CommandId
    answer: Refusal | None


@dataclass(frozen=True, slots=True)
class AlertTried:
    """The target of an alert has accepted it, or the try failed."""

    claim: Claim
    failure: Failure | None


@dataclass(frozen=True, slots=True)
class QuarantineChanged:
    """Which pipelines cannot run, since their artifacts are nowhere, and why."""

    quarantined: Mapping[PipelineName, str]


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The process is shutting down."""


News = (
    Elected
    | Revoked
    | CommandsChanged
    | WorkersChanged
    | AttemptChanged
    | ReleasePrepared
    | RunBuilt
    | BuildingFailed
    | TaskRendered
    | RenderingFailed
    | DataSeen
    | RunArchived
    | OutcomesArchived
    | TermsArchived
    | PurgeStored
    | AlertTried
    | QuarantineChanged
    | StopAsked
)
