"""A machine: its disk with the attempts' folders, and its runners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nimbus.domain.ids import AttemptId, HostId, WorkerId
from nimbus.domain.slots import Claim, End
from nimbus.domain.task_run import Outcome
from tests.nimbus.simulation.catalog import FAILING_CHILD
from tests.nimbus.simulation.zookeeper import Session

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World


@dataclass
class Folder:
    """An attempt's files on the disk, which outlive every process."""

    attempt: AttemptId
    worker: WorkerId
    record: End | None = None
    """Its exit record."""
    delivered: bool = False
    runner: Runner | None = None
    """The last runner, alive or dead."""

    @property
    def locked(self) -> bool:
        """True if its runner is alive."""
        return self.runner is not None and self.runner.alive


class Host:
    """See the module."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.id = world, HostId(name)
        self.up, self.cut = True, False
        self.folders: dict[tuple[WorkerId, AttemptId], Folder] = {}

    def reaches_zookeeper(self) -> bool:
        """True if requests from this host are answered."""
        return self.up and not self.cut and self.world.zookeeper.available

    def runners(self) -> tuple[Runner, ...]:
        """The living runners."""
        return tuple(f.runner for f in self.folders.values() if f.runner is not None and f.runner.alive)

    def runs(self, attempt: AttemptId) -> bool:
        """True if a runner of an attempt lives here, in any worker's folder."""
        return any(runner.folder.attempt == attempt for runner in self.runners())

    def crash(self) -> None:
        """The host loses power."""
        self.up = False
        for runner in self.runners():
            runner.die()


class Runner:
    """The process that runs one attempt: it claims, runs user code, and reports the end."""

    def __init__(self, host: Host, folder: Folder) -> None:
        self.host, self.folder = host, folder
        self.alive, self.paused, self.cut = True, False, False
        self.computing = self.claimed = False
        self._session: Session | None = None
        folder.runner = self

    def reaches_zookeeper(self) -> bool:
        """Whether a request of it is answered."""
        return self.alive and not self.paused and not self.cut and self.host.reaches_zookeeper()

    def act(self, outcome: Outcome | None) -> None:
        """Do the next step. `outcome`: how its driver ends now; None: it keeps computing."""
        if not self.alive or self.paused:
            return
        if self.computing and outcome is not None:
            self._record(outcome)
        if not self.reaches_zookeeper():
            return
        if self.folder.record is not None:
            self._deliver(self.folder.record)
        elif not self.claimed:
            self._claim()
        elif self.computing:
            self._beat()

    def die(self) -> None:
        """SIGKILL; the kernel kills its driver with it."""
        self.alive = self.computing = False
        if self._session is not None and self.host.world.rng.random() < 0.5:
            self.host.world.zookeeper.end_session(self._session)

    def _claim(self) -> None:
        world, attempt = self.host.world, self.folder.attempt
        ours = Claim(
            attempt=str(attempt),
            worker=self.folder.worker,
            host=self.host.id,
            pid=world.next_pid(),
            claimed_at=world.worker_now(),
        )
        if world.zookeeper.claim(attempt, ours) != ours:
            self.folder.delivered = True
            self.alive = False
            return
        self.claimed = self.computing = True
        world.ledger.executed(attempt)
        self._beat()

    def _beat(self) -> None:
        zookeeper, attempt = self.host.world.zookeeper, self.folder.attempt
        if self._session is None or not self._session.alive:
            self._session = zookeeper.open_session(self.reaches_zookeeper)
            self._session.beat(attempt)

    def _record(self, outcome: Outcome) -> None:
        """One item of each fan-out fails at first, so that a retry repeats it."""
        self.computing = False
        if outcome is Outcome.SUCCEEDED and self.folder.attempt.run.endswith(FAILING_CHILD):
            outcome = Outcome.FAILED
        self.folder.record = End(
            attempt=str(self.folder.attempt),
            outcome=outcome,
            failure=self.host.world.dice.failure() if outcome is Outcome.FAILED else None,
            written_by="runner",
            ended_at=self.host.world.worker_now(),
            output=str(self.folder.attempt) if outcome is Outcome.SUCCEEDED else None,
            result={"given": str(self.folder.attempt)} if outcome is Outcome.SUCCEEDED else None,
        )

    def _deliver(self, record: End) -> None:
        zookeeper = self.host.world.zookeeper
        zookeeper.end(self.folder.attempt, record)
        self.folder.delivered, self.alive = True, False
        if self._session is not None:
            zookeeper.end_session(self._session)
