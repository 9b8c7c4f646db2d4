"""A worker: reads its orders, launches runners and executors, and ends the attempts of dead ones.

It acts on what it read last, which may have been taken back since: CLAIM and END decide, as in reality.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any
from zlib import crc32

from nimbus.domain.attempts.slots import Claim, End, Holder
from nimbus.domain.attempts.workers import Assignment, AssignmentKind, WorkerInfo
from nimbus.domain.ids import AttemptId, WorkerId
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker import settlement
from nimbus.worker.executor import Sight, collect
from tests.nimbus.simulation.applications import Applications
from tests.nimbus.simulation.catalog import NEWEST_SCHEMA, TARGET, TARGET_SLOTS
from tests.nimbus.simulation.clocks import START
from tests.nimbus.simulation.host import Folder, Host
from tests.nimbus.simulation.processes import Executor, Runner
from tests.nimbus.simulation.zookeeper import Session

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World


class _KilledError(Exception):
    """The worker was killed between two instructions."""


class Worker:
    """One worker process. After a kill it can restart with the same or another id."""

    def __init__(self, world: World, host: Host, name: str, slots: int) -> None:
        self.world, self.host, self.id, self.slots = world, host, WorkerId(name), slots
        self.alive, self.paused, self.draining = True, False, False
        self._boot = 0
        self._session: Session | None = None
        self._board = world.zookeeper.board()
        self._orders: dict[AttemptId, Assignment] = {}
        self._phases: dict[AttemptId, bool] = {}
        """Its attempts; True: nothing is left to do for it."""
        self._executor: Executor | None = None
        self._applications = Applications(self)

    def reaches_zookeeper(self) -> bool:
        """True if its requests are answered."""
        return self.acts() and self.host.reaches_zookeeper()

    def acts(self) -> bool:
        """True if it runs and is not stopped."""
        return self.alive and not self.paused and self.host.up

    def die(self) -> None:
        """SIGKILL. Its runners continue."""
        self._end()
        if self._session is not None and self.world.rng.random() < 0.5:
            self.world.zookeeper.end_session(self._session)

    def leave(self) -> None:
        """SIGTERM: it withdraws its registration."""
        self._end()
        if self._session is not None:
            self.world.zookeeper.end_session(self._session)

    def _end(self) -> None:
        self.alive = False
        self._orders, self._phases = {}, {}
        self._applications = Applications(self)
        if self._executor is not None:
            self._executor.leave_worker()
            self._executor = None

    def start_again(self) -> None:
        """Start as a new process with the same id and folders."""
        self.alive, self.paused, self.draining = True, False, False
        self._boot += 1
        self._session = None
        for folder in self.host.folders.values():
            left = folder.is_locked or folder.record is not None or folder.claim is not None
            if folder.worker == self.id and not folder.delivered and (left or folder.is_pooled):
                self._phases[folder.attempt] = False
        self._applications.sweep()

    def drain(self) -> None:
        """Accept no more work."""
        self.draining = True
        if self._session is not None and self._session.alive and self.reaches_zookeeper():
            self._publish()

    @property
    def _executors(self) -> Any:
        of_host = _OfHost(self)
        return {
            Holder.PROCESS: of_host,
            Holder.POOLED: of_host,
            Holder.APPLICATION: self._applications,
        }

    def read(self) -> None:
        """Register if needed, and read the orders."""
        if not self.reaches_zookeeper():
            return
        if self._session is None or not self._session.alive:
            if self.id in self.world.zookeeper.world.workers:
                return  # of its predecessor, whose session has not expired yet
            boot = self._boot
            self._session = self.world.zookeeper.open_session(
                lambda: self._boot == boot and self.reaches_zookeeper()
            )
            self._publish()
        self._orders = {AttemptId.parse(order.attempt): order for order in self._board.assignments(self.id)}

    def _publish(self) -> None:
        info = WorkerInfo(
            id=self.id,
            host=self.host.id,
            hostname=self.host.id,
            pid=1,
            slots=self.slots,
            version="1",
            started_at=START,
            draining=self.draining,
            newest_schema=NEWEST_SCHEMA,
            targets={TARGET: TARGET_SLOTS},
            submits=(TARGET,),
            reported_at=START,
        )
        assert self._session is not None
        self._session.register(info)

    def work(self) -> None:
        """Execute the orders, and settle attempts of dead runners and executors."""
        if not self.reaches_zookeeper():
            return
        try:
            self._work()
        except _KilledError:
            self.world.story.note(self.id, "is killed at work")
            self.die()

    def _work(self) -> None:
        for attempt, order in self._orders.items():
            if order.kind is AssignmentKind.REAP:
                self._reap(attempt, order)
            elif attempt not in self._phases:
                self._take(order, attempt)
        self._applications.work()
        for attempt, is_done in tuple(self._phases.items()):
            folder = self.host.folders.get((self.id, attempt))
            if not is_done and folder is not None and not folder.is_locked:
                self._settle(folder)
            elif is_done and attempt not in self._orders:
                del self._phases[attempt]

    @property
    def session(self) -> Session | None:
        """Its session; None: it has to open one."""
        return self._session if self._session is not None and self._session.alive else None

    def begin(self, attempt: AttemptId) -> None:
        """There is something to do for an attempt."""
        self._phases[attempt] = False

    def done(self, attempt: AttemptId) -> None:
        """Nothing is left to do for an attempt."""
        self._phases[attempt] = True

    def lose_executor(self, executor: Executor) -> None:
        """It takes no more orders."""
        if self._executor is executor:
            self._executor = None

    def between(self) -> None:
        """Two instructions: it can be killed here."""
        if self.world.dice.dies_now():
            raise _KilledError

    # -- an order to run

    def _take(self, order: Assignment, attempt: AttemptId) -> None:
        if order.task.runs_in_cluster:
            if self._applications.launch(attempt):
                self._phases.setdefault(attempt, attempt not in self._applications.followed)
            return
        before = self.host.folders.get((self.id, attempt))
        self._phases[attempt] = False
        if before is not None and (before.is_locked or self._was_launched(before)):
            return
        if self.world.dice.order_is_refused(full=self.host.full):
            settlement.refuse(
                self.world.zookeeper.settling, order, self.id, "no disk", self.world.worker_now()
            )
            self.done(attempt)
            return
        is_pooled = crc32(str(attempt).encode()) % 2 == 0
        folder = Folder(self.host, attempt, self.id, is_pooled)
        self.host.folders[self.id, attempt] = folder
        self.between()
        if is_pooled:
            self._living_executor().take(folder)
        else:
            Runner(self.host, folder)

    def _was_launched(self, folder: Folder) -> bool:
        if folder.is_pooled:  # see `_lost`
            return True
        has_ended = folder.delivered or folder.record is not None
        return has_ended or self.world.zookeeper.read(folder.attempt).claim is not None

    def _living_executor(self) -> Executor:
        if self._executor is None or not self._executor.alive:
            self._executor = Executor(self)
        return self._executor

    # -- after the death of a runner or executor

    def _settle(self, folder: Folder) -> None:
        """End one of this worker's attempts. Repeated from the start after a kill."""
        if folder.delivered:
            self.done(folder.attempt)
            return
        record = folder.record
        if record is None:
            folder.kill_rest()
            self.between()
            record = self._lost(folder) if folder.is_pooled else self._ending_of_the_dead(folder)
            self.between()
        if record is not None:
            settlement.put_end(self.world.zookeeper.settling, record)
            self.between()
        if folder.is_pooled:
            del self.host.folders[self.id, folder.attempt]
            if record is None:  # unclaimed, archived, or claimed by another: the order is read again
                del self._phases[folder.attempt]
            else:
                self.done(folder.attempt)
        elif folder.mark_delivered():
            self.done(folder.attempt)

    def _lost(self, folder: Folder) -> End | None:
        """See `PooledExecutor._lost`."""
        claim = self.world.zookeeper.read(folder.attempt).claim
        if claim is None or folder.shell is None or claim.nonce != folder.shell.claim.nonce:
            return None
        return settlement.lost(claim.attempt, claim, "its executor died", self.world.worker_now())

    def _ending_of_the_dead(self, folder: Folder) -> End | None:
        """See `process_executor.ending_of_the_dead`."""
        attempt, now = str(folder.attempt), self.world.worker_now()
        refused = settlement.ended(attempt, Outcome.REFUSED, "its runner ended before its claim", now)
        won = settlement.fence(self.world.zookeeper.settling, refused, self.id, now)
        if won is None or (not won.is_fenced and won.worker != self.id):
            return None
        if won.is_fenced:
            folder.record_exit(replace(refused, nonce=won.nonce))
        else:
            folder.record_exit(settlement.lost(attempt, won, "its runner died without a word", now))
        return folder.record

    # -- an order to reap

    def _reap(self, attempt: AttemptId, order: Assignment) -> None:
        folder = self.host.folders.get((self.id, attempt))
        if folder is not None and not folder.delivered:
            self._phases.setdefault(attempt, False)
        elif order.claim is not None or order.task.runs_in_cluster:
            collect(self.world.zookeeper.settling, order, self._executors)


class _OfHost:
    """What a worker sees of the attempts of any worker on its host: see `nimbus.worker.executor.Executor`."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def probe(self, attempt: str, claim: Claim | None) -> Sight:
        """See `Executor.probe`."""
        if claim is not None and claim.host != self._worker.host.id:
            return Sight.ELSEWHERE
        return Sight.ALIVE if any(folder.is_locked for folder in self._folders(attempt)) else Sight.GONE

    def collect(self, attempt: str, claim: Claim | None) -> End:
        """See `Executor.collect`."""
        records = []
        for folder in self._folders(attempt):
            folder.kill_rest()
            if folder.record is not None and claim is not None and folder.record.nonce == claim.nonce:
                records.append(folder.record)
        now = self._worker.world.worker_now()
        return records[0] if records else settlement.lost(attempt, claim, "its runner is gone", now)

    def _folders(self, attempt: str) -> list[Folder]:
        return [found for found in self._worker.host.folders.values() if str(found.attempt) == attempt]
