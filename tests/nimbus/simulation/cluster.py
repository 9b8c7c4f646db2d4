"""A Spark cluster: its manager, and the bootstraps that it starts. They reach the board through a gateway."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from nimbus.attempt import model as m
from nimbus.domain.attempts.slots import Claim, ClusterDriver, Holder
from nimbus.domain.ids import AttemptId
from nimbus.ports import AttemptWithdrawnError
from nimbus.worker.application.manager import ClusterUnreachableError, DriverState, DriverStatus
from tests.nimbus.attempts.driver import hold
from tests.nimbus.simulation.catalog import TARGET
from tests.nimbus.simulation.host import Folder, Host
from tests.nimbus.simulation.processes import Process
from tests.nimbus.simulation.shell import Shell

if TYPE_CHECKING:
    from tests.nimbus.simulation.worker import Worker
    from tests.nimbus.simulation.world import World


class Cluster(Host):
    """See `nimbus.worker.application.manager.ClusterManager`. Only `submit` differs."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "cluster")
        self.answers = True
        self._drivers: dict[str, Bootstrap | Folder] = {}
        """By id. A folder: it waits for its start. Those that have ended are removed."""
        self._submitted: set[AttemptId] = set()

    def reaches_zookeeper(self) -> bool:
        """True if a scheduler opens its gateway."""
        return any(scheduler.reaches_zookeeper() for scheduler in self.world.schedulers)

    def act(self) -> None:
        """Start a driver that waits, and remove those that have ended."""
        for name, driver in tuple(self._drivers.items()):
            if isinstance(driver, Bootstrap):
                if not driver.alive:
                    del self._drivers[name]
            elif self.world.dice.driver_begins():
                self._drivers[name] = Bootstrap(self, driver, name)

    def submit(self, attempt: AttemptId, worker: Worker) -> str:
        """Submit a driver. Raises ClusterUnreachableError."""
        self._reach()
        hold(attempt not in self._submitted, attempt, "is submitted twice")
        self._submitted.add(attempt)
        name = f"driver-{self.world.next_pid()}"
        self._drivers[name] = Folder(self, attempt, worker.id, is_pooled=False, submitted_from=worker.host)
        return name

    def find(self, attempt: AttemptId) -> str | None:
        """The driver of an attempt that has not ended. Raises ClusterUnreachableError."""
        self._reach()
        return next((name for name in self._drivers if self._attempt_of(name) == attempt), None)

    def forgotten(self, driver: str) -> None:
        """No worker follows a driver any more. Law: it is gone."""
        hold(self._drivers.get(driver) is None or self._attempt_of(driver) is None, driver, "is forgotten")

    def _attempt_of(self, name: str) -> AttemptId | None:
        match self._drivers[name]:
            case Folder(attempt=attempt):
                return attempt
            case Bootstrap() as process:
                return process.attempt if process.alive else None

    def probe(self, driver: str) -> DriverStatus:
        """The state of a driver."""
        if not self.answers:
            return DriverStatus(DriverState.UNKNOWN, "nothing")
        match self._drivers.get(driver):
            case Folder():
                return DriverStatus(DriverState.WAITING, "it waits")
            case Bootstrap(alive=True):
                return DriverStatus(DriverState.RUNNING, "it runs")
            case _:
                return DriverStatus(DriverState.GONE, "it is gone")

    def kill(self, driver: str) -> None:
        """End a driver. Raises ClusterUnreachableError."""
        self._reach()
        found = self._drivers.pop(driver, None)
        if isinstance(found, Bootstrap):
            found.die()

    def _reach(self) -> None:
        if not self.answers:
            raise ClusterUnreachableError("the cluster does not answer")


class Bootstrap(Process):
    """The process of one attempt inside the cluster. All that it started dies with it."""

    def __init__(self, cluster: Cluster, folder: Folder, name: str) -> None:
        super().__init__(cluster)
        self.name, self.attempt = name, folder.attempt
        self.host.world.zookeeper.end_session(self.session)  # it has none
        self.shells.append(BootstrapShell(self, folder))

    def act(self) -> None:
        """Do some of what is due."""
        if self.alive and not self.paused:
            for shell in tuple(self.shells):
                shell.act()

    def die(self) -> None:
        """SIGKILL, also of its container."""
        self.alive = False
        for shell in self.shells:
            shell.driver.die(remains=False)
            shell.driver.clear()

    def done_with(self, shell: Shell) -> None:
        """The attempt is over."""
        super().done_with(shell)
        self.alive = False


class BootstrapShell(Shell):
    """An attempt in its bootstrap. It keeps no record on a disk, and sends heartbeats by itself."""

    holder = Holder.APPLICATION
    pace = None
    writes_as = "driver"
    _number = 0

    def made_claim(self) -> Claim:
        """The claim, in the name of the worker that has submitted it."""
        assert isinstance(self.process, Bootstrap) and self.folder.submitted_from is not None
        driver = ClusterDriver(target=TARGET, id=self.process.name)
        return replace(super().made_claim(), host=self.folder.submitted_from.id, driver=driver)

    def act(self) -> None:
        """Send a heartbeat, whose answer says what a read would; then what else is due."""
        if isinstance(self.life.state, m.Preparing | m.Running) and self.process.is_answered():
            self._beat()
        super().act()

    def _beat(self) -> None:
        """See `nimbus.scheduler.gateway.ClusterGateway.beat`."""
        now_s, attempt, zookeeper = self.world.time.s, self.folder.attempt, self.world.zookeeper
        slots = zookeeper.read(attempt)
        is_open = slots.end is None and slots.claim is not None and slots.claim.nonce == self.claim.nonce
        if is_open:
            self._number += 1
            zookeeper.report(attempt, {"number": self._number})
        self.tell(m.BoardRead(m.ClaimHolder.OURS, now_s, not is_open, slots.stop_requested))

    def _keep_record(self) -> None:
        self._answers.append(m.Recorded())

    def _put_end(self) -> m.Event:
        assert self.record is not None
        try:
            return m.EndAnswered(self.world.zookeeper.end(self.record).outcome)
        except AttemptWithdrawnError:
            return m.EndAnswered("withdrawn")
