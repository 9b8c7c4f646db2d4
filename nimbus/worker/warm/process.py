"""A runner's handle of its warm driver: started without an attempt, later bound to one. Main thread."""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import sys
from functools import partial
from pathlib import Path

from nimbus.domain.workers import Assignment
from nimbus.worker import driver, forked
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.driver_plan import attempt_environment, write_plan
from nimbus.worker.driver_process import DriverProcess
from nimbus.worker.files import read_if_there
from nimbus.worker.proc_area import ARGUMENT_ROOM, ROOM
from nimbus.worker.settings import RunnerPlan
from nimbus.worker.warm.plan import WarmPlan

DRIVER = (sys.executable, "-I", "-u", "-m", "nimbus.worker.warm.driver")
_BIND_S = 20.0
_NOT_YET_KNOWN = "SPARK_LOCAL_DIRS"
"""It overrides `java.io.tmpdir`, so a JVM with it keeps the folder of its start."""


class WarmDriver(DriverProcess):
    """One warm driver, from its start to its attempt's end."""

    def __init__(self, place: Path, plan: WarmPlan, command: tuple[str, ...] = DRIVER) -> None:
        """Start it in its own folder; it reports when it is ready.

        Args:
            place: Folder for its log and temporary files.
            plan: Settings for Spark's start.
            command: The program, replaced in tests.
        """
        self._place = place
        (place / "work" / "tmp").mkdir(parents=True)
        (place / "warm.json").write_bytes(plan.encode())
        environment = {**plan.environment, **ROOM, "TMPDIR": str(place / "work" / "tmp")}
        environment.pop(_NOT_YET_KNOWN, None)
        ours, theirs = socket.socketpair()
        self._go_fd, channel = ours.detach(), theirs.detach()
        self._fault_fd, fault = os.pipe2(os.O_CLOEXEC)
        arguments = [*command, str(place), str(channel), ARGUMENT_ROOM]
        work = partial(_become, place, arguments, environment, channel, fault, os.getpid())
        pid = forked.fork(work)
        os.close(channel)
        os.close(fault)
        self._watch(pid)

    @property
    def channel(self) -> int:
        """A descriptor that is readable when the driver is ready or has ended."""
        return self._go_fd

    def is_ready(self) -> bool:
        """True if it is ready, False if it has ended. Call it once, when the channel is readable."""
        return os.read(self._go_fd, 1) == b"r"

    def last_words(self) -> bytes:
        """The end of its log, for the worker."""
        lines = (read_if_there(self._place / "log") or b"").strip().splitlines()
        return lines[-1][:500] if lines else b"it said nothing"

    def bind(self, folder: AttemptFolder, plan: RunnerPlan, order: Assignment) -> bool:
        """Make it the driver of an attempt; False: it does not fit, and user code has not run.

        Its log and temporary files move into the attempt's folder. Links replace them, because the JVM
        still uses the old paths.
        """
        self._folder = folder
        try:
            (self._place / "log").replace(folder.log)
            (self._place / "work" / "tmp").rename(folder.scratch)
            shutil.rmtree(self._place)
            self._place.symlink_to(folder.path)
            write_plan(folder, plan, order)
            message = {"folder": str(folder.path), "environment": attempt_environment(folder, plan)}
            os.write(self._go_fd, json.dumps(message).encode() + b"\n")
            poll = select.poll()
            poll.register(self._go_fd, select.POLLIN)
            return bool(poll.poll(_BIND_S * 1000)) and os.read(self._go_fd, 1) == b"b"
        except OSError:
            return False

    def forget(self) -> None:
        """Remove the link or folder after the driver has ended."""
        if self._place.is_symlink():
            self._place.unlink(missing_ok=True)
        else:
            shutil.rmtree(self._place, ignore_errors=True)


def _become(
    place: Path, arguments: list[str], environment: dict[str, str], channel: int, fault: int, runner: int
) -> int:
    """Execute the driver in the forked child. `fault` is closed when it has begun."""
    forked.keep_only(channel, fault)
    try:
        os.setpgid(0, 0)
        forked.reset_signals()
        os.chdir(place / "work" / "tmp")
        forked.write_to(place / "log")
        os.set_inheritable(channel, True)
        if forked.die_with(runner):
            os.execve(arguments[0], arguments, environment)  # noqa: S606 - no shell
    except OSError as exc:
        os.write(fault, str(exc).encode())
    os._exit(driver.EXIT_NOT_STARTED)
