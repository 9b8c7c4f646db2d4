"""Writes of the leader, as data. A decision is a tuple of writes, applied in one fenced transaction."""

from __future__ import annotations

from dataclasses import dataclass

from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.attempts.workers import Assignment
from nimbus.domain.cluster.alerts import Alert
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.cluster.terms import Term
from nimbus.domain.commands import Abdication, CommandOutcome, QueuedCommand
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.ids import AttemptId, PipelineName, RunId, WorkerId
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.pipeline_health import PipelineHealth
from nimbus.domain.runs.run import Run
from nimbus.domain.starts.due import Due


@dataclass(frozen=True, slots=True)
class CreateRun:
    """Create a run."""

    run: Run


@dataclass(frozen=True, slots=True)
class PutRun:
    """Replace an existing run."""

    run: Run
    before: Run
    """The stored record: only differences must be written."""


@dataclass(frozen=True, slots=True)
class RemoveRun:
    """Remove a finished run, after it is in history. Its attempts are removed first, by RemoveAttempt."""

    run: RunId


@dataclass(frozen=True, slots=True)
class CreatePipeline:
    """Create a pipeline."""

    record: PipelineRecord


@dataclass(frozen=True, slots=True)
class PutPipeline:
    """Replace an existing pipeline."""

    record: PipelineRecord
    before: PipelineRecord
    """The stored record: only differences must be written."""

    @property
    def skipped(self) -> int:
        """Number of fire times that this write skips."""
        return self.record.skips.total - self.before.skips.total


@dataclass(frozen=True, slots=True)
class RemovePipelineRecord:
    """Remove a pipeline from the catalog."""

    record: PipelineRecord
    """The stored record."""


@dataclass(frozen=True, slots=True)
class PutIntervals:
    """Replace a pipeline's index of intervals, in the transaction that ends a run or removes the pipeline."""

    pipeline: PipelineName
    index: IntervalIndex | None
    """None: remove the index."""
    before: IntervalIndex | None
    """The stored record: only differences must be written."""


@dataclass(frozen=True, slots=True)
class PutDataset:
    """Create or replace a dataset, in the transaction that accepts the success of its publisher."""

    dataset: Dataset
    before: Dataset | None
    """The stored record; None: there is none yet."""


@dataclass(frozen=True, slots=True)
class PutDue:
    """Replace what is due for a consumer, in the transaction that publishes or starts its run."""

    pipeline: PipelineName
    due: Due | None
    """None: remove it; the pipeline does not start by data any more, or is removed."""
    before: Due | None
    """The stored record; None: there is none yet."""


@dataclass(frozen=True, slots=True)
class RemoveDatasetRecord:
    """Remove a dataset, after its versions were removed from history."""

    dataset: Dataset
    """The stored record."""


@dataclass(frozen=True, slots=True)
class PutBackfill:
    """Create or replace a backfill."""

    backfill: Backfill
    before: Backfill | None
    """The stored record; None: there is none yet."""


@dataclass(frozen=True, slots=True)
class RemoveBackfill:
    """Remove an old backfill that has ended."""

    backfill: Backfill


@dataclass(frozen=True, slots=True)
class ConsumeCommand:
    """Remove a command from the queue and write its outcome, in the transaction that acts on it."""

    outcome: CommandOutcome


@dataclass(frozen=True, slots=True)
class PutCommand:
    """Queue a command of a selection, or replace the selection's own command."""

    queued: QueuedCommand
    is_new: bool


@dataclass(frozen=True, slots=True)
class PutAbdication:
    """Replace the record of an earlier abdication, whose epoch is over."""

    abdication: Abdication


@dataclass(frozen=True, slots=True)
class PutSettings:
    """Replace the cluster settings."""

    settings: ClusterSettings


@dataclass(frozen=True, slots=True)
class CreateTerm:
    """Create the record of a term, in the transaction of its first decision."""

    term: Term


@dataclass(frozen=True, slots=True)
class PutTerm:
    """Replace the record of a term."""

    term: Term


@dataclass(frozen=True, slots=True)
class RaiseSchema:
    """Raise the cluster's schema. The last write of a term: it makes the term's fencing token stale."""

    schema: int


@dataclass(frozen=True, slots=True)
class CreateAttempt:
    """Create the node that will hold an attempt's slots."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class RemoveAttempt:
    """Remove an ended attempt and all its slots, when its run moves to history, or no longer records it."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class Assign:
    """Write an order to a worker."""

    worker: WorkerId
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Unassign:
    """Remove an order, done or not."""

    worker: WorkerId
    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Fill a CLAIM slot as leader."""

    attempt: AttemptId
    claim: Claim


@dataclass(frozen=True, slots=True)
class WriteEnd:
    """Fill an END slot as leader."""

    attempt: AttemptId
    end: End


@dataclass(frozen=True, slots=True)
class RequestStop:
    """Request that a runner ends its driver."""

    attempt: AttemptId
    reason: str


@dataclass(frozen=True, slots=True)
class CreateAlert:
    """Create an alert, in the transaction that writes its cause."""

    alert: Alert


@dataclass(frozen=True, slots=True)
class PutAlert:
    """Replace an existing alert."""

    alert: Alert


@dataclass(frozen=True, slots=True)
class RemoveAlert:
    """Remove an ended alert, after people had time to see it."""

    id: str


@dataclass(frozen=True, slots=True)
class PutHealth:
    """Write the health of a pipeline."""

    health: PipelineHealth
    is_new: bool
    """True: there is no health record yet."""


@dataclass(frozen=True, slots=True)
class RemoveHealth:
    """Remove the health of a pipeline that is removed from the catalog."""

    pipeline: PipelineName


DataWrite = PutIntervals | PutDataset | RemoveDatasetRecord | PutDue
ClusterWrite = (
    DataWrite
    | PutBackfill
    | RemoveBackfill
    | PutAbdication
    | CreateTerm
    | PutTerm
    | PutSettings
    | RaiseSchema
)
AlertWrite = CreateAlert | PutAlert | RemoveAlert | PutHealth | RemoveHealth

Write = (
    CreateRun
    | PutRun
    | RemoveRun
    | CreatePipeline
    | PutPipeline
    | RemovePipelineRecord
    | ConsumeCommand
    | PutCommand
    | CreateAttempt
    | RemoveAttempt
    | Assign
    | Unassign
    | WriteClaim
    | WriteEnd
    | RequestStop
    | ClusterWrite
    | AlertWrite
)
