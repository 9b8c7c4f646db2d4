"""Leader processes that start in milliseconds, for tests that kill them with SIGKILL.

They are forked from a process that has imported all modules: `python -m tests.nimbus.chaos.forked_leaders
MODULE`, which reads requests as lines of JSON. Each leader runs `MODULE.lead(**arguments)` until it is
killed. It records its actions, and the step at which it kills itself, in a file that the test reads.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tests.benchmark.blobsync.line_process import LineProcess
from tests.benchmark.engine.child import play

_LOOK_S = 0.005
LONGEST_S = 180.0
"""Time limit of every wait, on a busy machine."""


def wait(found: Callable[[], object], what: str = "") -> None:
    """Wait until `found` returns true, at most LONGEST_S."""
    until = time.monotonic() + LONGEST_S
    while not found():
        assert time.monotonic() < until, f"not within {LONGEST_S} s: {what or found}"
        time.sleep(_LOOK_S)


@dataclass(frozen=True, slots=True)
class Notes:
    """Lines of JSON; those of one leader have its name. Processes may share a file."""

    file: Path

    def add(self, leader: str, **what: Any) -> None:
        """Add a line. It is kept even if the process is killed right after."""
        with self.file.open("ab", buffering=0) as lines:
            lines.write(json.dumps({"leader": leader, **what}).encode() + b"\n")

    def all(self) -> list[dict[str, Any]]:
        """All lines, oldest first."""
        return [json.loads(line) for line in self.file.read_bytes().splitlines()]

    def wait_for(self, what: str, found: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Wait until `found` is true for the lines."""
        wait(lambda: found(self.all()), what)

    def die(self, leader: str, at: str) -> NoReturn:
        """Kill this process."""
        self.add(leader, killed=at)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class ForkedLeaders:
    """The test's side."""

    def __init__(self, module: str, log: Path) -> None:
        command = [sys.executable, "-m", __name__, module]
        self._process = LineProcess("forked leaders", command, log)

    def start(self, **arguments: Any) -> int:
        """Start a leader; return its process id."""
        pid: int = self._process.ask({"do": "fork", "arguments": arguments})["value"]
        return pid

    def close(self) -> None:
        """End all."""
        self._process.close()


class _Forks:
    """The side of the process that forks."""

    def __init__(self, module: str) -> None:
        self._lead = importlib.import_module(module).lead
        self._children: list[int] = []

    def fork(self, arguments: dict[str, Any]) -> int:
        pid = os.fork()
        if pid == 0:
            self._live(arguments)
        self._children.append(pid)
        return pid

    def _live(self, arguments: dict[str, Any]) -> NoReturn:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(null, 1)
        try:
            self._lead(**arguments)
            signal.pause()
        except BaseException:  # noqa: BLE001 - the test reads the log
            traceback.print_exc()
        finally:
            os._exit(1)

    def close(self) -> None:
        for pid in self._children:  # reaped only here, so that no pid belongs to another process
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(play(_Forks(sys.argv[1])))
