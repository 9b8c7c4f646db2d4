"""The processes that run attempts: a runner runs one, an executor many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nimbus.attempt import model as m
from nimbus.attempt.life import Pace
from nimbus.domain.attempts.slots import Holder
from tests.nimbus.attempts.driver import hold
from tests.nimbus.simulation.shell import Shell
from tests.nimbus.simulation.zookeeper import Session

if TYPE_CHECKING:
    from tests.nimbus.simulation.host import Folder, Host
    from tests.nimbus.simulation.worker import Worker


class Process:
    """A process with attempts, and its session. After a kill only its folders are left."""

    session: Session

    def __init__(self, host: Host) -> None:
        self.host, self.shells = host, list[Shell]()
        self.alive, self.paused, self.cut, self.silent = True, False, False, False
        self.must_leave = False
        host.processes.append(self)
        self.session = host.world.zookeeper.open_session(self.reaches_zookeeper)

    def reaches_zookeeper(self) -> bool:
        """True if its session is kept."""
        return self.alive and not self.paused and not self.cut and self.host.reaches_zookeeper()

    def is_answered(self) -> bool:
        """True if its requests are answered. A silent board keeps its session, and answers nothing."""
        return not self.silent and self.reaches_zookeeper()

    def act(self) -> None:
        """Do some of what is due."""
        if not self.alive or self.paused:
            return
        if not self.session.alive and self.reaches_zookeeper():
            self.session = self.host.world.zookeeper.open_session(self.reaches_zookeeper)
            for shell in tuple(self.shells):
                shell.tell(m.BoardChanged())
        for shell in tuple(self.shells):
            if self.alive:
                shell.act()

    def die(self) -> None:
        """SIGKILL. Its drivers are killed with it, but perhaps not their descendants."""
        if not self.alive:
            return
        self.alive = False
        for shell in self.shells:
            shell.driver.die(remains=self.host.up and self.host.world.dice.remains())
        if self.host.world.rng.random() < 0.5:
            self.host.world.zookeeper.end_session(self.session)

    def leave(self) -> None:
        """SIGTERM: running drivers continue; a worker does what waits for the board."""
        self.must_leave = True

    def exit(self) -> None:
        """Nothing is left to do."""
        self.alive = False
        self.host.world.zookeeper.end_session(self.session)

    def done_with(self, shell: Shell) -> None:
        """An attempt is over, or left to a worker."""
        hold(not shell.driver.runs, "an attempt is left whose driver runs")
        self.shells.remove(shell)

    def kill_starter(self) -> None:
        """Kill the process that starts drivers."""


class Runner(Process):
    """The process of one attempt."""

    def __init__(self, host: Host, folder: Folder) -> None:
        super().__init__(host)
        self.shells.append(Shell(self, folder))

    def done_with(self, shell: Shell) -> None:
        """An attempt is over, or left to a worker."""
        super().done_with(shell)
        self.exit()


class PooledShell(Shell):
    """An attempt in an executor."""

    holder = Holder.POOLED
    pace = Pace(first_board_read_s=0.3)
    writes_as = "executor"

    def _prepare(self) -> m.Event:  # its files were made before the claim
        return m.Prepared()

    def _clear(self) -> None:
        self.driver.clear()
        self.tell(m.Cleared())

    def _keep_record(self) -> None:  # see `_put_end`
        self.tell(m.Recorded())

    def _put_end(self) -> m.Event:
        """The thread of the board writes the record."""
        self.folder.record_exit(self.record)
        return super()._put_end()

    def _store_log(self) -> None:
        self.tell(m.LogStored(is_complete=True))

    def _forget(self) -> None:
        self.driver.forget(self.folder.attempt)
        self._leave()


class Executor(Process):
    """The process of a worker's pooled attempts. It takes no orders after the death of its worker."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(worker.host)
        self.worker: Worker | None = worker
        self.owner = worker.id

    def take(self, folder: Folder) -> None:
        """Begin an attempt."""
        self.shells.append(PooledShell(self, folder))

    def done_with(self, shell: Shell) -> None:
        """An attempt is over, or left to a worker."""
        super().done_with(shell)
        folder = shell.folder
        if self.host.folders.get((folder.worker, folder.attempt)) is folder:
            del self.host.folders[folder.worker, folder.attempt]
        if self.worker is not None:
            self.worker.done(folder.attempt)
        self.end_if_done()

    def leave(self) -> None:
        """SIGTERM: it takes no more orders."""
        super().leave()
        if self.worker is not None:
            self.worker.lose_executor(self)
        self.leave_worker()

    def leave_worker(self) -> None:
        """No more orders come."""
        self.worker = None
        self.end_if_done()

    def end_if_done(self) -> None:
        """Exit after the last attempt if there are no more orders."""
        if self.alive and self.worker is None and not self.shells:
            self.exit()

    def kill_starter(self) -> None:
        """The zygote dies, and with it all drivers."""
        for shell in tuple(self.shells):
            if self.alive:
                shell.lose_driver()
