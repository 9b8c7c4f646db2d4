"""The leader's store: the shipped in-memory store, with random events between two requests."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from nimbus.adapters.memory_store import MemoryLeaderStore, MemoryTransaction
from nimbus.domain import writes as w
from nimbus.domain.alerts import Alert
from nimbus.domain.backfill import Backfill
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.ids import AttemptId, BackfillId, CommandId, PipelineName, RunId, WorkerId
from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.pipeline_health import PipelineHealth
from nimbus.domain.run import Run
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.slots import Slots
from nimbus.domain.terms import Term
from nimbus.domain.workers import WorkerInfo
from nimbus.ports import (
    CatalogPart,
    Enqueue,
    LoadedPart,
    Pruned,
    RegisteredPart,
    RunsPart,
    StoreUnavailableError,
)
from tests.nimbus.simulation.laws import Law, hold
from tests.nimbus.simulation.zookeeper import EndOf, Watched

if TYPE_CHECKING:
    from tests.nimbus.simulation.scheduler import Scheduler

LARGEST_BATCH = 12
"""Most writes in one transaction; small, so that a turn needs several."""


class ProcessKilledError(BaseException):
    """The process died at this point. Not an Exception, so that the engine cannot catch it."""


class SmallTransaction(MemoryTransaction):
    """A transaction with a small limit."""

    def add(self, writes: Sequence[w.Write]) -> bool:
        """Add writes, unless there are too many."""
        if self._writes and len(self._writes) + len(writes) > LARGEST_BATCH:
            return False
        return super().add(writes)


class FaultyStore:
    """See `nimbus.ports.LeaderStore`. Before each request its process can be stopped, cut off or killed."""

    def __init__(self, scheduler: Scheduler, epoch: int) -> None:
        self.scheduler = scheduler
        self._world = scheduler.world
        self._zookeeper = scheduler.world.zookeeper
        self._inner = MemoryLeaderStore(self._zookeeper.cluster, epoch, runs_at_once=1)
        self.epoch = epoch
        self._on: dict[str, Enqueue] = {}
        self._on_attempt: Callable[[AttemptId], None] = lambda _attempt: None
        self.doubtful = True
        """True if a request failed, and the whole state was not read since."""
        self.missed_s: dict[AttemptId | WorkerId, float] = {}
        """When this leader first missed a runner or a worker that it has not seen since."""

    def subscribe(self, *, commands: Enqueue, workers: Enqueue, attempt: Callable[[AttemptId], None]) -> None:
        """Set the callbacks for changes."""
        self._on, self._on_attempt = {"commands": commands, "workers": workers}, attempt

    def told(self, what: Watched) -> None:
        """A watch fired."""
        if isinstance(what, EndOf):
            self._on_attempt(what.attempt)
        elif isinstance(what, AttemptId):
            self._on_attempt(what)
        else:
            self._on[what]()

    def load(self) -> Iterator[LoadedPart]:
        """Read everything, piece by piece."""
        for part in self._inner.load():
            self._reach()
            match part:
                case RegisteredPart():
                    yield replace(part, workers=self.read_workers())
                case RunsPart():
                    yield replace(part, slots=self.read_slots(tuple(part.slots)))
                case CatalogPart():
                    commands = self.read_commands((), len(part.commands) + 200)
                    self.doubtful = False
                    yield replace(part, commands=commands)

    def read_commands(self, known: Collection[CommandId], most: int) -> tuple[QueuedCommand, ...]:
        """Waiting commands."""
        self._reach()
        self._zookeeper.arm("commands", self)
        return self._inner.read_commands(known, most)

    def read_workers(self) -> tuple[WorkerInfo, ...]:
        """Registered workers."""
        self._reach()
        self._zookeeper.arm("workers", self)
        found = self._inner.read_workers()
        there = {worker.id for worker in found}
        for worker in self._world.workers:
            self._note(worker.id, alive=worker.id in there)
        return found

    def read_schedulers(self) -> tuple[SchedulerInfo, ...]:
        """Registered schedulers."""
        self._reach()
        return self._inner.read_schedulers()

    def read_slots(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """Slots of some attempts."""
        self._reach()
        for attempt in attempts:
            self._zookeeper.arm(attempt, self)
        found = self._inner.read_slots(attempts)
        for attempt, slots in found.items():
            self._note(attempt, alive=slots.beating)
        return found

    def await_ends(self, attempts: Sequence[AttemptId]) -> Collection[AttemptId]:
        """The attempts that have ended."""
        self._reach()
        for attempt in attempts:
            self._zookeeper.arm(EndOf(attempt), self)
        return self._inner.await_ends(attempts)

    def read_ends(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """CLAIM and END of ended attempts."""
        self._reach()
        return self._inner.read_ends(attempts)

    def read_run(self, run: RunId) -> Run | None:
        """One run."""
        self._reach()
        return self._inner.read_run(run)

    def read_pipeline(self, name: PipelineName) -> PipelineRecord | None:
        """One pipeline."""
        self._reach()
        return self._inner.read_pipeline(name)

    def read_backfill(self, backfill: BackfillId) -> Backfill | None:
        """One backfill."""
        self._reach()
        return self._inner.read_backfill(backfill)

    def read_alerts(self) -> tuple[Alert, ...]:
        """Alerts."""
        self._reach()
        return self._inner.read_alerts()

    def read_health(self) -> tuple[PipelineHealth, ...]:
        """The health records of pipelines."""
        self._reach()
        return self._inner.read_health()

    def read_intervals(self, name: PipelineName) -> IntervalIndex | None:
        """One index."""
        self._reach()
        return self._inner.read_intervals(name)

    def read_terms(self) -> tuple[Term, ...]:
        """The newest terms."""
        self._reach()
        return self._inner.read_terms()

    def old_terms(self, most: int) -> tuple[Term, ...]:
        """Terms beyond the newest `most`."""
        self._reach()
        return self._inner.old_terms(most)

    def forget_terms(self, epochs: Sequence[int]) -> None:
        """Forget some terms."""
        self._reach()
        self._inner.forget_terms(epochs)

    def begin(self) -> SmallTransaction:
        """Begin to collect writes."""
        return SmallTransaction(self._commit)

    def prune_outcomes(self, before: datetime, most: int) -> Pruned:
        """Forget old outcomes, of which an hour is half a minute here."""
        self._reach()
        with self._keeping_refusals():
            return self._inner.prune_outcomes(before + timedelta(minutes=59, seconds=30), most)

    def prune_keys(self, before: datetime, most: int) -> None:
        """Forget old keys."""
        self._reach()
        self._inner.prune_keys(before, most)

    def forget_outcomes(self, commands: Sequence[CommandId]) -> None:
        """Forget some outcomes."""
        self._reach()
        with self._keeping_refusals():
            self._inner.forget_outcomes(commands)

    @contextmanager
    def _keeping_refusals(self) -> Iterator[None]:
        before = self._zookeeper.world.outcomes
        yield
        gone = before.keys() - self._zookeeper.world.outcomes.keys()
        refused = {command for command in gone if not before[command].accepted}
        kept = self._world.storage.refusals.keys()
        hold(Law.REFUSALS_KEPT, refused <= kept, "gone, and not in history:", sorted(refused - kept))

    def _commit(self, writes: Sequence[w.Write]) -> None:
        self._reach(racing=any(isinstance(write, w.WriteClaim | w.WriteEnd) for write in writes))
        before = self._zookeeper.world
        transaction = self._inner.begin()
        transaction.add(writes)
        transaction.commit()
        self._world.ledger.committed(self, writes, before)
        for what in _watched(writes):
            self._zookeeper.fire(what)
        self._world.interlude(self.scheduler, racing=False)  # before the reply arrives
        self.scheduler.die_if_killed()
        if self._world.dice.reply_is_lost():
            self._fail("the reply of a commit was lost")

    def _note(self, whom: AttemptId | WorkerId, *, alive: bool) -> None:
        if alive:
            self.missed_s.pop(whom, None)
        else:
            self.missed_s.setdefault(whom, self._world.time.s)

    def _reach(self, *, racing: bool = False) -> None:
        """Simulate the time until a request arrives; others may act, or it may be lost."""
        self._world.interlude(self.scheduler, racing=racing)
        self.scheduler.die_if_killed()
        if not self.scheduler.reaches_zookeeper():
            self._fail("cut off")
        if self._world.dice.request_is_lost():
            self._fail("the request was lost")

    def _fail(self, why: str) -> None:
        self.doubtful = True
        raise StoreUnavailableError(why)


def _watched(writes: Sequence[w.Write]) -> dict[Watched, None]:
    """The watchable nodes that the writes change; each once, in order."""
    changed: dict[Watched, None] = {}
    for write in writes:
        match write:
            case w.ConsumeCommand():
                changed["commands"] = None
            case w.WriteClaim(attempt, _) | w.WriteEnd(attempt, _) | w.RequestStop(attempt, _):
                changed[attempt] = None
            case _:
                continue
    return changed
