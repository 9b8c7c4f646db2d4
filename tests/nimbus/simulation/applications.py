"""What a worker does about drivers in a cluster: see `nimbus.worker.application.executor`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nimbus.domain.attempts.slots import Claim, ClusterDriver, End, Slots
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs.task_run import Outcome
from nimbus.ports import AttemptWithdrawnError
from nimbus.worker import settlement
from nimbus.worker.application import submitted
from nimbus.worker.application.manager import ClusterUnreachableError
from nimbus.worker.application.submitted import Followed, SubmissionRecord
from nimbus.worker.executor import Sight
from tests.nimbus.simulation.catalog import TARGET
from tests.nimbus.simulation.shell import GRACE_S

if TYPE_CHECKING:
    from tests.nimbus.simulation.worker import Worker

QUEUE_TIMEOUT_S = 60.0


class Applications:
    """See the module. Its memory is lost with its worker; the records are on the host's disk."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._world = worker, worker.world
        self._records = worker.host.submissions.setdefault(worker.id, {})
        self.followed: dict[AttemptId, Followed] = {}

    def sweep(self) -> None:
        """Follow what an earlier worker has submitted."""
        for attempt, record in tuple(self._records.items()):
            self._worker.begin(attempt)
            if record.driver is not None:
                self._follow(attempt, record.driver)

    def work(self) -> None:
        """Do for each attempt what is due."""
        for attempt, record in tuple(self._records.items()):
            if record.driver is None:
                self._close_unknown(attempt)
        for attempt, one in tuple(self.followed.items()):
            self._look_at(attempt, one)

    # -- submission

    def launch(self, attempt: AttemptId) -> bool:
        """Submit a driver. False: try again."""
        slots = self._world.zookeeper.read(attempt)
        if slots.end is not None or attempt in self._records:
            return True
        if slots.claim is not None or slots.submitted is not None:  # another worker has submitted it
            return self.probe(str(attempt), slots.claim) is Sight.ALIVE
        cluster = self._world.cluster
        try:
            if attempt.number > 1 and (left := cluster.find(replace(attempt, number=attempt.number - 1))):
                cluster.kill(left)
            self._worker.between()
            self._note(attempt, None)
            self._worker.between()
            driver = cluster.submit(attempt, self._worker)
        except ClusterUnreachableError:
            self._records.pop(attempt, None)
            return False
        if not self._world.dice.answer_is_lost():  # else it is not known if it was submitted
            self._worker.between()
            self._note(attempt, driver)
            self._follow(attempt, driver)
        return True

    def _close_unknown(self, attempt: AttemptId) -> None:
        """Close an attempt whose submission has an unknown outcome, unless its driver is found."""
        now, cluster = self._world.worker_now(), self._world.cluster
        end = settlement.ended(str(attempt), Outcome.REFUSED, "it is not known if it was submitted", now)
        won = settlement.fence(self._world.zookeeper.settling, end, self._worker.id, now)
        self._worker.between()
        try:
            driver = won.driver.id if won is not None and won.driver is not None else cluster.find(attempt)
            if won is None or won.driver is None:
                if driver is not None:
                    cluster.kill(driver)
                self._done(attempt)
            elif driver is not None:
                self._note(attempt, driver)
                self._follow(attempt, driver)
        except ClusterUnreachableError:
            return

    def _note(self, attempt: AttemptId, driver: str | None) -> None:
        self._records[attempt] = SubmissionRecord(attempt=str(attempt), target=TARGET, driver=driver)

    # -- following

    def _follow(self, attempt: AttemptId, driver: str) -> None:
        self._worker.begin(attempt)
        one = Followed(attempt=str(attempt), driver=driver, since_s=self._world.time.s)
        self.followed[attempt] = one

    def _look_at(self, attempt: AttemptId, one: Followed) -> None:
        zookeeper, now_s = self._world.zookeeper, self._world.time.s
        slots = zookeeper.read(attempt)
        try:
            if slots.end is None and slots.claim is None:
                zookeeper.note_submitted(attempt, ClusterDriver(target=TARGET, id=one.driver))
            if slots.end is None and not slots.has_heartbeat and self._worker.session is not None:
                self._worker.session.heartbeat(attempt)
        except AttemptWithdrawnError:  # its run is over and archived
            self._kill(one.driver)
            self._done(attempt)
            return
        self._worker.between()
        one.take_slots(slots, now_s)
        one.take_report(self._world.cluster.probe(one.driver), now_s)
        self._act(attempt, one, slots)

    def _act(self, attempt: AttemptId, one: Followed, slots: Slots) -> None:
        now_s = self._world.time.s
        action = submitted.decide(
            one.observed(slots, now_s), stop_grace_s=2 * GRACE_S, queue_timeout_s=QUEUE_TIMEOUT_S
        )
        match action:
            case submitted.GoOn():
                return
            case submitted.StopFollowing():
                self._world.cluster.forgotten(one.driver)
                self._done(attempt)
            case submitted.EndDriver():
                if one.kill_is_due(now_s):
                    self._kill(one.driver)
            case submitted.EndAs(why, stopped):
                self._end(attempt, slots, why, stopped=stopped)

    def _end(self, attempt: AttemptId, slots: Slots, why: str, *, stopped: bool) -> None:
        """See `ApplicationExecutor._end`."""
        now, zookeeper = self._world.worker_now(), self._world.zookeeper
        if slots.claim is None:
            outcome = Outcome.STOPPED if stopped else Outcome.REFUSED
            end = settlement.ended(str(attempt), outcome, why, now)
            settlement.fence(zookeeper.settling, end, self._worker.id, now)
        else:
            outcome = Outcome.STOPPED if stopped else Outcome.LOST
            settlement.put_end(
                zookeeper.settling, settlement.lost(str(attempt), slots.claim, why, now, outcome)
            )

    def _kill(self, driver: str) -> None:
        try:
            self._world.cluster.kill(driver)
        except ClusterUnreachableError:
            return

    def _done(self, attempt: AttemptId) -> None:
        self.followed.pop(attempt, None)
        self._worker.done(attempt)
        self._worker.between()
        self._records.pop(attempt, None)

    # -- attempts of any worker

    def probe(self, attempt: str, claim: Claim | None) -> Sight:
        """See `ApplicationExecutor.probe`."""
        parsed = AttemptId.parse(attempt)
        if parsed in self.followed:
            return Sight.ALIVE
        slots = self._world.zookeeper.read(parsed)
        driver = slots.submitted if claim is None else claim.driver
        if driver is None or slots.end is not None:
            return Sight.ELSEWHERE
        self._note(parsed, driver.id)
        self._follow(parsed, driver.id)
        return Sight.ALIVE

    def collect(self, attempt: str, claim: Claim | None) -> End:
        """See `ApplicationExecutor.collect`."""
        return settlement.lost(attempt, claim, "its driver is gone", self._world.worker_now())
