"""Writes of the leader, as data. A decision is a tuple of them, done as one fenced transaction."""

from __future__ import annotations

from dataclasses import dataclass

from nimbus.domain.alerts import Alert
from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import Abdication, CommandOutcome
from nimbus.domain.ids import AttemptId, PipelineName, RunId, WorkerId
from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.pipeline_health import PipelineHealth
from nimbus.domain.run import Run
from nimbus.domain.settings import ClusterSettings
from nimbus.domain.slots import Claim, End
from nimbus.domain.terms import Term
from nimbus.domain.workers import Assignment


@dataclass(frozen=True, slots=True)
class CreateRun:
    """A run that was not there before."""

    run: Run


@dataclass(frozen=True, slots=True)
class PutRun:
    """A run that is there."""

    run: Run
    before: Run
    """As it stands now: what does not differ need not be written."""


@dataclass(frozen=True, slots=True)
class RemoveRun:
    """A finished run, once history has it. Its attempts are removed before, with RemoveAttempt."""

    run: RunId


@dataclass(frozen=True, slots=True)
class CreatePipeline:
    """A pipeline that was not there before."""

    record: PipelineRecord


@dataclass(frozen=True, slots=True)
class PutPipeline:
    """A pipeline that is there."""

    record: PipelineRecord
    before: PipelineRecord
    """As it stands now: what does not differ need not be written."""

    @property
    def skipped(self) -> int:
        """Fire times that the schedule passes over."""
        return self.record.skips.total - self.before.skips.total


@dataclass(frozen=True, slots=True)
class RemovePipelineRecord:
    """Out of the catalog."""

    record: PipelineRecord
    """As it stands now."""


@dataclass(frozen=True, slots=True)
class PutIntervals:
    """A pipeline's index of intervals: in the transaction that ends a run, or removes the pipeline."""

    pipeline: PipelineName
    index: IntervalIndex | None
    """None: there is none any more."""
    before: IntervalIndex | None
    """As it stands now: what does not differ need not be written."""


@dataclass(frozen=True, slots=True)
class PutBackfill:
    """A backfill as it is now."""

    backfill: Backfill
    before: Backfill | None
    """As it stands now; None: it was not there before."""


@dataclass(frozen=True, slots=True)
class RemoveBackfill:
    """One that is over, and so old that it is forgotten."""

    backfill: Backfill


@dataclass(frozen=True, slots=True)
class ConsumeCommand:
    """Take a command out of the queue and say what became of it: in the transaction that acts on it."""

    outcome: CommandOutcome


@dataclass(frozen=True, slots=True)
class PutAbdication:
    """In place of an earlier one, whose epoch is over."""

    abdication: Abdication


@dataclass(frozen=True, slots=True)
class PutSettings:
    """In place of the earlier ones."""

    settings: ClusterSettings


@dataclass(frozen=True, slots=True)
class CreateTerm:
    """The record of a term: with its first decision."""

    term: Term


@dataclass(frozen=True, slots=True)
class PutTerm:
    """A term that is recorded."""

    term: Term


@dataclass(frozen=True, slots=True)
class RaiseSchema:
    """Of the cluster. The last write of a term: from then on its fencing token is stale."""

    schema: int


@dataclass(frozen=True, slots=True)
class CreateAttempt:
    """The place where an attempt's slots will be."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class RemoveAttempt:
    """An attempt and all its slots, when its run moves to history."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class Assign:
    """The intent: an order to a worker."""

    worker: WorkerId
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Unassign:
    """Take an order back, done or not."""

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
    """Ask a runner to end its driver."""

    attempt: AttemptId
    reason: str


@dataclass(frozen=True, slots=True)
class CreateAlert:
    """Something to be told to a target: in the transaction that writes its cause."""

    alert: Alert


@dataclass(frozen=True, slots=True)
class PutAlert:
    """An alert that is there."""

    alert: Alert


@dataclass(frozen=True, slots=True)
class RemoveAlert:
    """An alert that has ended, once people had time to look at it."""

    id: str


@dataclass(frozen=True, slots=True)
class PutHealth:
    """How a pipeline fares."""

    health: PipelineHealth
    is_new: bool
    """Nothing was known of it."""


@dataclass(frozen=True, slots=True)
class RemoveHealth:
    """Of a pipeline that leaves the catalog."""

    pipeline: PipelineName


AlertWrite = CreateAlert | PutAlert | RemoveAlert | PutHealth | RemoveHealth

Write = (
    CreateRun
    | PutRun
    | RemoveRun
    | CreatePipeline
    | PutPipeline
    | RemovePipelineRecord
    | PutIntervals
    | PutBackfill
    | RemoveBackfill
    | ConsumeCommand
    | PutAbdication
    | PutSettings
    | CreateTerm
    | PutTerm
    | RaiseSchema
    | CreateAttempt
    | RemoveAttempt
    | Assign
    | Unassign
    | WriteClaim
    | WriteEnd
    | RequestStop
    | AlertWrite
)
