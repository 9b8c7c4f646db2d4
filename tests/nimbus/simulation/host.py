"""A machine: its disk with the attempts' folders, and its processes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nimbus.domain.attempts.slots import Claim, End
from nimbus.domain.ids import AttemptId, HostId, WorkerId
from nimbus.worker.application.submitted import SubmissionRecord

if TYPE_CHECKING:
    from tests.nimbus.simulation.processes import Process
    from tests.nimbus.simulation.shell import Shell
    from tests.nimbus.simulation.world import World


@dataclass(eq=False)
class Folder:
    """An attempt's files on the disk, which outlive every process."""

    host: Host
    attempt: AttemptId
    worker: WorkerId
    is_pooled: bool
    submitted_from: Host | None = None
    """In a cluster: the host of the worker that has submitted it."""
    claim: Claim | None = None
    """The claim that its process won."""
    record: End | None = None
    """Its exit record."""
    delivered: bool = False
    shell: Shell | None = None
    """What runs it, or ran it last."""

    @property
    def has_room(self) -> bool:
        """True if an exit record can be written: a runner has reserved the room for its own."""
        return not self.is_pooled or not self.host.full

    @property
    def is_locked(self) -> bool:
        """True if a process that runs it is alive."""
        return self.shell is not None and self.shell.process.alive

    def record_exit(self, end: End | None) -> None:
        """Write the exit record, once."""
        if self.has_room and self.record is None:
            self.record = end
            if self.shell is not None and end is self.shell.record:
                self.shell.driver.is_recorded = True

    def kill_rest(self) -> None:
        """Kill what is left of the processes of a dead runner or executor."""
        if self.shell is not None:
            self.shell.driver.clear()

    def mark_delivered(self) -> bool:
        """Note that nothing is left to do. False: the disk is full."""
        if self.shell is not None:
            self.shell.driver.forget(self.attempt)
        self.delivered = not self.host.full
        return self.delivered


class Host:
    """See the module."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.id = world, HostId(name)
        self.up, self.cut, self.full = True, False, False
        self.folders: dict[tuple[WorkerId, AttemptId], Folder] = {}
        self.submissions: dict[WorkerId, dict[AttemptId, SubmissionRecord]] = {}
        """Records of submissions to the cluster, on the disk."""
        self.processes: list[Process] = []
        """Those that live, and dead ones that nobody has looked after."""

    def reaches_zookeeper(self) -> bool:
        """True if requests from this host are answered."""
        return self.up and not self.cut and self.world.zookeeper.available

    def runners(self) -> tuple[Process, ...]:
        """The living processes that run attempts."""
        return tuple(process for process in self.processes if process.alive)

    def crash(self) -> None:
        """The host loses power."""
        self.up = False
        for process in self.runners():
            process.die()
