"""What the leader knows at one moment, and how news changes it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from nimbus.domain.catalog import PipelineRecord, ReleaseOf
from nimbus.domain.commands import Abdication, QueuedCommand
from nimbus.domain.ids import AttemptId, PipelineName, RunId, WorkerId
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.refusals import Refusals, refusals
from nimbus.domain.run import Attempt, Run
from nimbus.domain.slots import Slots
from nimbus.domain.supervision import Timings
from nimbus.domain.workers import WorkerInfo, busy_workers
from nimbus.ports import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The operator's bounds that rules keep."""

    timings: Timings = field(default_factory=Timings)
    max_mishaps: int = 10
    """Attempts of one task that may be lost, fenced or refused before the task fails."""
    keep_finished: timedelta = timedelta(hours=1)
    """How long a finished run stays in ZooKeeper after history has it."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a release could not be prepared."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """What a decision is about, so that one that cannot be decided on harms only itself."""

    kind: Literal["command", "pipeline", "run"]
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that rules may look at. Never changed in place."""

    epoch: int
    policy: Policy = field(default_factory=Policy)
    pipelines: Mapping[PipelineName, PipelineRecord] = field(default_factory=dict)
    runs: Mapping[RunId, Run] = field(default_factory=dict)
    commands: tuple[QueuedCommand, ...] = ()
    abdication: Abdication | None = None
    """The last one that was accepted, whatever its epoch."""
    resigning: bool = False
    """The abdication of this epoch is being done."""
    workers: Mapping[WorkerId, WorkerInfo] = field(default_factory=dict)
    slots: Mapping[AttemptId, Slots] = field(default_factory=dict)
    elapsed_s: float = 0.0
    """`Clock.elapsed_s` when the rules were asked, or something was last looked at."""
    silent_since_s: Mapping[AttemptId, float] = field(default_factory=dict)
    """Open attempts without a sign of life, with the `elapsed_s` at which this leader first missed it."""
    refusals: Mapping[WorkerId, Refusals] = field(default_factory=dict)
    """Workers that did not start their last attempts; a new leader finds them in the runs."""
    quarantined: Mapping[PipelineName, str] = field(default_factory=dict)
    preparing: frozenset[ReleaseOf] = frozenset()
    prepared: Mapping[ReleaseOf, PipelineSpec | Refusal] = field(default_factory=dict)
    archiving: frozenset[RunId] = frozenset()
    archived: frozenset[RunId] = frozenset()
    attempts_removed: Mapping[RunId, int] = field(default_factory=dict)
    """How many attempts of an archived run are removed already."""
    set_aside: Mapping[Subject, str] = field(default_factory=dict)
    """What no rule looks at for a while, since deciding about it failed, and how."""

    def tended_runs(self) -> Iterator[Run]:
        """Runs that rules look at."""
        return (run for run in self.runs.values() if Subject("run", run.id) not in self.set_aside)

    def live_runs(self) -> tuple[Run, ...]:
        """Runs that are not final, most urgent first: by priority, then by age."""
        return tuple(
            sorted(
                (run for run in self.tended_runs() if not run.state.is_final),
                key=lambda run: (run.priority, run.created_at, run.id),
            )
        )

    def open_attempts(self) -> Iterator[tuple[AttemptId, Run, Attempt]]:
        """Every attempt without an END, in a fixed order."""
        for run in self.live_runs():
            for attempt_id in run.open_attempts():
                yield attempt_id, run, run.tasks[attempt_id.task].attempts[-1]

    def busy(self) -> Mapping[WorkerId, int]:
        """Open attempts of each worker, those of runs that are set aside included."""
        return busy_workers(self.runs.values())


def from_snapshot(snapshot: Snapshot, before: Facts, elapsed_s: float) -> Facts:
    """Facts from a fresh look at everything, keeping what ZooKeeper does not hold."""
    fresh = replace(
        before,
        elapsed_s=elapsed_s,
        pipelines=snapshot.pipelines,
        runs=snapshot.runs,
        commands=snapshot.commands,
        workers={worker.id: worker for worker in snapshot.workers},
        slots=snapshot.slots,
        abdication=snapshot.abdication,
        refusals=refusals(snapshot.runs.values()),
    )
    return note_silence(fresh)


def with_workers(facts: Facts, workers: Iterable[WorkerInfo], elapsed_s: float) -> Facts:
    """Take in who is registered."""
    found = {worker.id: worker for worker in workers}
    return note_silence(replace(facts, elapsed_s=elapsed_s, workers=found))


def with_slots(facts: Facts, attempt: AttemptId, slots: Slots, elapsed_s: float) -> Facts:
    """Take in what there is of one attempt."""
    return note_silence(replace(facts, elapsed_s=elapsed_s, slots={**facts.slots, attempt: slots}))


def with_run(facts: Facts, run: Run) -> Facts:
    """Take in a run as a decision left it; slots of closed attempts are forgotten."""
    return note_silence(replace(facts, runs={**facts.runs, run.id: run}))


def without_run(facts: Facts, run: RunId) -> Facts:
    """Forget a run that has moved to history."""
    return replace(
        facts,
        runs={key: value for key, value in facts.runs.items() if key != run},
        archived=facts.archived - {run},
        attempts_removed={key: value for key, value in facts.attempts_removed.items() if key != run},
    )


def note_silence(facts: Facts) -> Facts:
    """Start, keep or drop the clock of each open attempt that gives no sign of life.

    Before CLAIM the sign is the worker's registration, afterwards the runner's beat.
    """
    silent: dict[AttemptId, float] = {}
    slots: dict[AttemptId, Slots] = {}
    for attempt_id, _, attempt in facts.open_attempts():
        seen = slots[attempt_id] = facts.slots.get(attempt_id, Slots())
        alive = attempt.worker in facts.workers if seen.claim is None else seen.beating
        if not alive:
            silent[attempt_id] = facts.silent_since_s.get(attempt_id, facts.elapsed_s)
    return replace(facts, slots=slots, silent_since_s=silent)
