"""Messages in the engine's inbox: events that happened elsewhere, named in the past tense."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leader import Leadership
from nimbus.domain.cluster.alerts import AlertClaim, DeliveryFailure
from nimbus.domain.data.publications import Version
from nimbus.domain.data.reads import Lacking
from nimbus.domain.ids import AttemptId, CommandId, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskSpec
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.starts.waits import DataProbe, ProbeResult
from nimbus.engine.decision import Refusal
from nimbus.engine.state import Built
from nimbus.engine.state.tasks import Pins
from nimbus.engine.work_queue import Key


@dataclass(frozen=True, slots=True)
class Elected:
    """Leadership is confirmed: lock, epoch and guard."""

    leadership: Leadership


@dataclass(frozen=True, slots=True)
class LeadershipRevoked:
    """Leadership of this epoch is over. A handover keeps the lock until `applied` is called, with a limit."""

    epoch: int
    reason: str
    applied: Callable[[], None] = lambda: None


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
    """A release was brought to this disk, verified and read; or this failed."""

    release: ReleaseOf
    result: PipelineSpec | Refusal


@dataclass(frozen=True, slots=True)
class RunBuilt:
    """A run was built; or it cannot be built, because of its own definition or input."""

    key: Key
    built: Built


@dataclass(frozen=True, slots=True)
class BuildingFailed:
    """A run could not be built, for a reason outside the run."""

    key: Key
    draft: Draft
    error: Exception


@dataclass(frozen=True, slots=True)
class TaskRendered:
    """The templates of a ready task were rendered; or they cannot be, because they are wrong."""

    run: RunId
    task: TaskName
    result: TaskSpec | Refusal


@dataclass(frozen=True, slots=True)
class RenderingFailed:
    """The templates of a ready task could not be rendered, for a reason outside the templates."""

    run: RunId
    task: TaskName
    error: Exception


@dataclass(frozen=True, slots=True)
class VersionsFound:
    """The versions that a ready task reads were found; or one is missing; or it can never read them."""

    run: RunId
    task: TaskName
    result: Pins | Refusal | Lacking


@dataclass(frozen=True, slots=True)
class FindingFailed:
    """The versions that a ready task reads could not be looked up, for a reason outside the task."""

    run: RunId
    task: TaskName
    error: Exception


@dataclass(frozen=True, slots=True)
class DataSeen:
    """A probe of data ended."""

    probe: DataProbe
    seen: ProbeResult


@dataclass(frozen=True, slots=True)
class RunArchived:
    """History has a run, and its traces and lineage are sent or given up."""

    run: RunId


@dataclass(frozen=True, slots=True)
class OutcomesArchived:
    """History has the outcomes of these commands. Empty: storing them failed, and not by an outage."""

    commands: tuple[CommandId, ...]


@dataclass(frozen=True, slots=True)
class TermsArchived:
    """History has the terms of these epochs."""

    epochs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredForCommand:
    """What a command needs in object storage is there, or is refused."""

    command: CommandId
    answer: Refusal | tuple[Version, ...] | None
    """For a command about a dataset: versions that history has."""


@dataclass(frozen=True, slots=True)
class AlertTried:
    """A try to send an alert ended: the target accepted it, or the try failed."""

    claim: AlertClaim
    failure: DeliveryFailure | None


@dataclass(frozen=True, slots=True)
class QuarantineChanged:
    """The set of quarantined pipelines changed: their artifacts are missing everywhere."""

    quarantined: Mapping[PipelineName, str]


@dataclass(frozen=True, slots=True)
class StopAsked:
    """The process is shutting down."""


OfTerm = (
    CommandsChanged
    | WorkersChanged
    | AttemptChanged
    | ReleasePrepared
    | RunBuilt
    | BuildingFailed
    | TaskRendered
    | RenderingFailed
    | VersionsFound
    | FindingFailed
    | DataSeen
    | RunArchived
    | OutcomesArchived
    | TermsArchived
    | StoredForCommand
    | AlertTried
)
"""What only the term that asked for it handles."""
Event = Elected | LeadershipRevoked | QuarantineChanged | StopAsked | OfTerm
