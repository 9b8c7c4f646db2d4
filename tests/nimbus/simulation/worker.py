"""A worker: reads its orders, launches runners, and ends the attempts of dead runners.

It acts on what it read last, which may have been taken back since: CLAIM and END decide, as in reality.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nimbus.domain.ids import AttemptId, WorkerId
from nimbus.domain.slots import Claim, End
from nimbus.domain.task_run import Outcome
from nimbus.domain.workers import Assignment, AssignmentKind, WorkerInfo
from tests.nimbus.simulation.catalog import NEWEST_SCHEMA, TARGET, TARGET_SLOTS
from tests.nimbus.simulation.clocks import START
from tests.nimbus.simulation.host import Folder, Host, Runner
from tests.nimbus.simulation.zookeeper import Session

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World


class Worker:
    """One worker process. After a kill it can restart with the same or another id."""

    def __init__(self, world: World, host: Host, name: str, slots: int) -> None:
        self.world, self.host, self.id, self.slots = world, host, WorkerId(name), slots
        self.alive, self.paused, self.draining = True, False, False
        self._boot = 0
        self._session: Session | None = None
        self._board = world.zookeeper.board()
        self._orders: dict[AttemptId, Assignment] = {}

    def reaches_zookeeper(self) -> bool:
        """True if its requests are answered."""
        return self.acts() and self.host.reaches_zookeeper()

    def acts(self) -> bool:
        """True if it runs and is not stopped."""
        return self.alive and not self.paused and self.host.up

    def die(self) -> None:
        """SIGKILL. Its runners continue."""
        self.alive = False
        self._orders = {}
        if self._session is not None and self.world.rng.random() < 0.5:
            self.world.zookeeper.end_session(self._session)

    def leave(self) -> None:
        """SIGTERM: it withdraws its registration."""
        self.alive = False
        if self._session is not None:
            self.world.zookeeper.end_session(self._session)

    def start_again(self) -> None:
        """Start as a new process with the same id and folders."""
        self.alive, self.paused, self.draining = True, False, False
        self._boot += 1
        self._session = None

    def drain(self) -> None:
        """Accept no more work."""
        self.draining = True
        if self._session is not None and self._session.alive and self.reaches_zookeeper():
            self._publish()

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
            reported_at=START,
        )
        assert self._session is not None
        self._session.register(info)

    def work(self) -> None:
        """Execute the orders, and settle attempts of dead runners."""
        if not self.reaches_zookeeper():
            return
        for attempt, order in self._orders.items():
            if order.kind is AssignmentKind.REAP:
                self._reap(attempt, order)
            elif (self.id, attempt) not in self.host.folders:
                self._take(attempt)
        for folder in tuple(self.host.folders.values()):
            if folder.worker == self.id and not folder.delivered and not folder.locked:
                self._settle(folder)

    def _take(self, attempt: AttemptId) -> None:
        folder = self.host.folders[self.id, attempt] = Folder(attempt, self.id)
        if self.world.dice.order_is_refused():
            self._fence(folder, "no disk")
        else:
            Runner(self.host, folder)

    def _settle(self, folder: Folder) -> None:
        """Report how an attempt with a dead runner ended."""
        if folder.record is None:
            self._fence(folder, "its runner died")
        if folder.record is not None:
            self.world.zookeeper.end(folder.attempt, folder.record)
        folder.delivered = True

    def _fence(self, folder: Folder, why: str) -> None:
        """Fill CLAIM so that no driver can start; record the result."""
        now = self.world.worker_now()
        ours = Claim(
            attempt=str(folder.attempt), fenced_by_epoch=0, worker=self.id, host=self.host.id, claimed_at=now
        )
        standing = self.world.zookeeper.claim(folder.attempt, ours)
        if standing is None or standing.worker != self.id:
            folder.delivered = True  # another attempt has it, or it is no longer needed
            return
        outcome = Outcome.REFUSED if standing.is_fenced else Outcome.LOST
        folder.record = self._end(folder.attempt, outcome, why)

    def _reap(self, attempt: AttemptId, order: Assignment) -> None:
        """Search for processes of another worker's attempt on this host."""
        if order.claim is None or order.claim.host != self.host.id or self.host.runs(attempt):
            return
        records = [f.record for f in self.host.folders.values() if f.attempt == attempt and f.record]
        end = records[0] if records else self._end(attempt, Outcome.LOST, "its runner is gone")
        self.world.zookeeper.end(attempt, end)

    def _end(self, attempt: AttemptId, outcome: Outcome, why: str) -> End:
        now = self.world.worker_now()
        return End(attempt=str(attempt), outcome=outcome, written_by="worker", ended_at=now, reason=why)
