"""The leader's store: the shipped one, with random events before each of its requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from leader import Leadership
from nimbus.domain import writes as w
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.ids import AttemptId, CommandId, WorkerId
from nimbus.ports import (
    CatalogPart,
    LoadedPart,
    Pruned,
    RegisteredPart,
    RunsPart,
    StoreUnavailableError,
)
from tests.nimbus.dict_cluster import DictCluster, DictLeaderStore, DictTransaction
from tests.nimbus.dict_store import DictCalls, DictSession
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.scheduler import Scheduler

LARGEST_BATCH = 12
"""Most writes in one transaction; small, so that a turn needs several."""


class ProcessKilledError(BaseException):
    """The process died at this point. Not an Exception, so that the engine cannot catch it."""


class SmallTransaction(DictTransaction):
    """A transaction with a small limit."""

    def add(self, writes: Sequence[w.Write]) -> bool:
        """Add writes, unless there are too many."""
        if self.writes and len(self.writes) + len(writes) > LARGEST_BATCH:
            return False
        return super().add(writes)


class LeaderCalls(DictCalls):
    """The calls of a leader in a cluster that has existed for a while."""

    def ensure(self, path: str) -> None:
        """Do nothing: the node exists."""


class FaultyStore(DictLeaderStore):
    """See `nimbus.ports.LeaderStore`. Before each request its process can be stopped, cut off or killed."""

    runs_at_once = 1

    def __init__(self, scheduler: Scheduler, leadership: Leadership) -> None:
        self.scheduler = scheduler
        self._world = scheduler.world
        self._zookeeper = scheduler.world.zookeeper
        cluster: DictCluster = self._zookeeper.cluster
        super().__init__(cluster, leadership.epoch)
        session = DictSession(cluster.store)
        session.reach = self._reach  # type: ignore[method-assign]
        self._calls, self._token = LeaderCalls(session), leadership.token
        self.epoch = leadership.epoch
        self._writes: Sequence[w.Write] = ()
        """Those of the transaction that is executed now."""
        self._before = cluster.world
        self.doubtful = True
        """True if a request failed, and the whole state was not read since."""
        self._loading = False
        self.missed_s: dict[AttemptId | WorkerId, float] = {}
        """When this leader first missed a runner or a worker that it has not seen since."""

    def load(self) -> Iterator[LoadedPart]:
        """Read everything, piece by piece."""
        parts = super().load()
        while True:
            self._loading = True  # what is read counts when the part is whole: else the leader never sees it
            try:
                part = next(parts, None)
            finally:
                self._loading = False
            match part:
                case None:
                    return
                case RegisteredPart():
                    self._note_workers(part.workers)
                case RunsPart():
                    self._note_runners(part.slots)
                case CatalogPart():  # the last one
                    self.doubtful = False
            yield part

    def read_workers(self) -> tuple[WorkerInfo, ...]:
        """Registered workers."""
        found = super().read_workers()
        if not self._loading:
            self._note_workers(found)
        return found

    def read_slots(self, attempts: Sequence[AttemptId]) -> Mapping[AttemptId, Slots]:
        """Slots of some attempts."""
        found = super().read_slots(attempts)
        if not self._loading:
            self._note_runners(found)
        return found

    def _note_workers(self, found: Iterable[WorkerInfo]) -> None:
        there = {worker.id for worker in found}
        for worker in self._world.workers:
            self._note(worker.id, alive=worker.id in there)

    def _note_runners(self, found: Mapping[AttemptId, Slots]) -> None:
        for attempt, slots in found.items():
            self._note(attempt, alive=slots.has_heartbeat)

    def begin(self) -> SmallTransaction:
        """Begin to collect writes."""
        return SmallTransaction(self)

    def prune_outcomes(self, before: datetime, most: int) -> Pruned:
        """Forget old outcomes, of which an hour is half a minute here."""
        with self._keeping_refusals():
            return super().prune_outcomes(before + timedelta(minutes=59, seconds=30), most)

    def forget_outcomes(self, commands: Sequence[CommandId]) -> None:
        """Forget some outcomes."""
        with self._keeping_refusals():
            super().forget_outcomes(commands)

    @contextmanager
    def _keeping_refusals(self) -> Iterator[None]:
        before = self._zookeeper.world.outcomes
        yield
        gone = before.keys() - self._zookeeper.world.outcomes.keys()
        refused = {command for command in gone if not before[command].accepted}
        kept = self._world.storage.refusals.keys()
        hold(Law.REFUSALS_KEPT, refused <= kept, "gone, and not in history:", sorted(refused - kept))

    def _commit(self, writes: Sequence[w.Write]) -> None:
        self._writes = writes
        try:
            self._execute()
        finally:
            self._writes = ()
        self._world.ledger.committed(self, writes, self._before)
        self._world.interlude(self.scheduler, racing=False)  # before the reply arrives
        self.scheduler.die_if_killed()
        if self._world.dice.reply_is_lost():
            self._fail("the reply of a commit was lost")

    def _note(self, whom: AttemptId | WorkerId, *, alive: bool) -> None:
        if alive:
            self.missed_s.pop(whom, None)
        else:
            self.missed_s.setdefault(whom, self._world.time.s)

    def _reach(self) -> None:
        """Simulate the time until a request arrives; others may act, or it may be lost."""
        racing = any(isinstance(write, w.WriteClaim | w.WriteEnd) for write in self._writes)
        self._world.interlude(self.scheduler, racing=racing)
        self.scheduler.die_if_killed()
        if not self.scheduler.reaches_zookeeper():
            self._fail("cut off")
        if self._world.dice.request_is_lost():
            self._fail("the request was lost")
        if self._writes:
            self._before = self._zookeeper.world

    def _fail(self, why: str) -> None:
        self.doubtful = True
        raise StoreUnavailableError(why)
