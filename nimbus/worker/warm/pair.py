"""The worker's handle of a waiting runner and its warm driver: a socket. Worker thread."""

from __future__ import annotations

import json
import secrets
import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.fork_launcher import ForkLauncher
from nimbus.worker.launcher import memory_file
from nimbus.worker.procfs import ProcessId
from nimbus.worker.settings import RunnerStartup
from nimbus.worker.tags import attempt_tag
from nimbus.worker.warm.plan import WarmPlan
from nimbus.worker.warm.runner import READY, TAKEN

FOLDER = "warm"
_READY_S = 600.0
_ANSWER_S = 5.0
"""Time limit for taking a lock: milliseconds, or a second if a dying runner still holds it."""


class WarmPair:
    """One pair. It ends when this end of its socket is closed, unless it has an attempt."""

    def __init__(
        self, work_dir: Path, forks: ForkLauncher, plan: WarmPlan, command: Sequence[str] = ()
    ) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self.plan = plan
        self.is_ready = False
        self._until_s = time.monotonic() + _READY_S
        self.last_words = ""
        self._place = place = work_dir / FOLDER / secrets.token_hex(6)
        place.mkdir(mode=0o700, parents=True)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self.runner: ProcessId = forks.fork_waiting(place, theirs.fileno(), command)
            with memory_file(plan.encode()) as file:
                socket.send_fds(self._control, [b"plan"], [file])
        except OSError:
            self._control.close()
            place.rmdir()
            raise
        self._control.settimeout(0)

    def look(self) -> bool:
        """Update whether it is ready; return False if it has ended."""
        try:
            told = self._control.recv(1024)
        except BlockingIOError:
            if self.is_ready or time.monotonic() < self._until_s:
                return True
            told = f"it was not ready within {_READY_S:.0f} s".encode()
        except OSError as exc:
            told = str(exc).encode()
        if told == READY:
            self.is_ready = True
            return True
        self.last_words = told.decode(errors="replace") or "its runner ended"
        shutil.rmtree(self._place, ignore_errors=True)  # its runner does so, too, if it is not killed
        return False

    def hand_over(self, folder: AttemptFolder, startup: RunnerStartup) -> bool:
        """Give it an attempt; False: it did not accept it, so another runner may."""
        tag = attempt_tag(startup.plan.cluster, str(folder.attempt))
        request = json.dumps({"folder": str(folder.path), "tag": tag}).encode()
        self._control.settimeout(_ANSWER_S)
        try:
            with memory_file(startup.encode()) as file:
                socket.send_fds(self._control, [request], [file])
            return self._control.recv(64) == TAKEN
        except OSError:
            return False

    def close(self) -> None:
        """End it, unless it has an attempt."""
        self._control.close()
