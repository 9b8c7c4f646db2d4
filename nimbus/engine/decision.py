"""The answer of a rule about one key: a decision, or the time until which there is none.

A decision has writes or effects. Other threads carry effects out: `Jobs` has those under way, with results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from nimbus.domain.cluster.alerts import Alert
from nimbus.domain.cluster.terms import Term
from nimbus.domain.commands import CommandOutcome
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Read, Version
from nimbus.domain.data.reads import Partitions
from nimbus.domain.ids import CommandId, DatasetName, RunId, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.runs.purge import PurgeOrder, RunNote
from nimbus.domain.runs.run import Run
from nimbus.domain.starts.admission import Gate
from nimbus.domain.starts.waits import DataProbe
from nimbus.domain.writes import PutRun, RemoveAttempt, RemoveRun, RequestStop, Write, WriteClaim, WriteEnd
from nimbus.engine.work_queue import Key


@dataclass(frozen=True, slots=True)
class PrepareRelease:
    """Bring a release to this leader's own disk, verify it, and read its definition."""

    release: ReleaseOf


@dataclass(frozen=True, slots=True)
class ArchiveRun:
    """Store a finished run in history."""

    run: RunId


@dataclass(frozen=True, slots=True)
class ArchiveOutcomes:
    """Store outcomes of commands in history, so that they can be removed."""

    outcomes: tuple[CommandOutcome, ...]


@dataclass(frozen=True, slots=True)
class ArchiveTerms:
    """Store terms in history, so that they can be removed."""

    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class BuildRun:
    """Build a run from its release's definition, with rendered arguments."""

    key: Key
    """What starts the run: a command, a pipeline whose schedule fires, or a task."""
    draft: Draft
    parent: Run | None = None
    """For a child run: the parent, in whose context its parameters are rendered."""


@dataclass(frozen=True, slots=True)
class RenderTask:
    """Render the templates of a ready task, which read results of other tasks."""

    run: Run
    task: TaskName


@dataclass(frozen=True, slots=True)
class FindVersions:
    """Find the versions that a ready task reads, also in history."""

    run: Run
    task: TaskName
    asked: tuple[tuple[Read, Partitions, Dataset | None], ...]
    """Each read, the partitions that it needs, and the dataset as the leader knows it."""


@dataclass(frozen=True, slots=True)
class ProbeData:
    """Look up data that tasks wait for."""

    probe: DataProbe


@dataclass(frozen=True, slots=True)
class StorePurge:
    """Store the order of a purge command, or a note about a run."""

    command: CommandId
    order: PurgeOrder | RunNote


@dataclass(frozen=True, slots=True)
class ResignLeadership:
    """Close the latch and queue again."""

    reason: str
    to: str = ""
    """The scheduler that leads next; empty: the next in the queue."""


@dataclass(frozen=True, slots=True)
class StoreVersions:
    """Store versions of a dataset that commands have made in history, before the next one is made."""

    command: CommandId
    """The command that waits for it."""
    dataset: DatasetName
    versions: tuple[Version, ...]
    partition: str | None = None
    """Of a withdrawal: the partition whose version before must be found."""
    known: tuple[Version, ...] = ()
    """Of a withdrawal: versions that history may not have yet, `versions` among them."""
    removes: int = 0
    """Not 0: remove the dataset's versions with smaller numbers, which are all, from history instead."""


@dataclass(frozen=True, slots=True)
class SendAlert:
    """Send an alert that this leader has claimed."""

    alert: Alert


Effect = (
    PrepareRelease
    | ArchiveRun
    | ArchiveOutcomes
    | ArchiveTerms
    | BuildRun
    | RenderTask
    | FindVersions
    | ProbeData
    | ResignLeadership
    | SendAlert
    | StorePurge
    | StoreVersions
)

MAY_LOSE = (WriteClaim, WriteEnd, RequestStop, RemoveAttempt, RemoveRun)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One step of the leader. Its writes are applied together.

    A decision has writes or effects, never both: the reply to a write may be lost, and effects in the same
    decision would be lost with it. Effects are decided in the next step, from the written records.
    """

    name: str
    """Past tense, constant: the log's and the metric's key."""
    writes: tuple[Write, ...] = ()
    effects: tuple[Effect, ...] = ()
    about: Mapping[str, str] = field(default_factory=dict)
    """Fields of the log line."""
    repeated: bool = False
    """True: every new leader repeats it, so it is logged at debug level only."""

    def __post_init__(self) -> None:
        if self.writes and self.effects:
            raise ValueError(f"{self.name} has writes and effects: a lost reply would lose the effects")

    @property
    def may_lose(self) -> bool:
        """True when another process may be faster: it fills a slot that a driver may fill, or deletes.

        It then gets its own transaction, so that its refusal does not affect other decisions.
        """
        return any(isinstance(write, MAY_LOSE) for write in self.writes)


def put_run(name: str, run: Run, before: Run, /, **about: str) -> Decision:
    """The decision to replace a run's record alone."""
    return Decision(name=name, writes=(PutRun(run, before),), about={"run": run.id, **about})


@dataclass(frozen=True, slots=True, kw_only=True)
class NoDecision:
    """Nothing to decide about a key before `at` or `after_s`; with neither, before a change."""

    at: datetime | None = None
    after_s: float | None = None
    """Time of the clock that counts suspend."""
    gates: tuple[Gate, ...] = ()
    """For a ready task: the limits that it waits for; empty: it waits for a worker."""


Answer = Decision | NoDecision
Done = tuple[str, tuple[Write, ...]]
"""What a command has done: the message of its answer, and the writes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a release was not prepared, a run was not built, or what a command needs was not stored."""

    code: str
    message: str


K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Built:
    """The result of building a draft."""

    draft: Draft
    result: Run | Refusal | None
    """None: it could not be built yet. It is tried again, with the same fire time."""


class Jobs(Generic[K, T]):
    """Jobs of one kind, by what they are for, and the results that are not used up."""

    def __init__(self) -> None:
        self.under_way: set[K] = set()
        self.results: dict[K, T] = {}

    def finish(self, key: K, result: T | None) -> bool:
        """Record the end of a job; None: without a result. False: nothing waits for it any more."""
        if key not in self.under_way:
            return False
        self.under_way.discard(key)
        if result is not None:
            self.results[key] = result
        return True

    def forget(self, key: K) -> None:
        """Remove a job and its result."""
        self.under_way.discard(key)
        self.results.pop(key, None)

    def keep_from(self, before: Jobs[K, T]) -> None:
        """Copy the jobs of another state."""
        self.under_way, self.results = set(before.under_way), dict(before.results)

    def keep_only(self, is_kept: Callable[[K], bool]) -> None:
        """Drop all others."""
        self.under_way = set(filter(is_kept, self.under_way))
        self.results = {key: kept for key, kept in self.results.items() if is_kept(key)}
