"""Starts the host processes of the contenders, with the same topology for all."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.benchmark.leader.curator_side import CuratorMissingError, CuratorProgram
from tests.benchmark.leader.host_process import HostGroup

HOSTS = 3
"""Number of processes of each contender, so that each hand-over is from one process to another."""

SESSION_TIMEOUT = timedelta(seconds=10)


@dataclass(frozen=True)
class Contender:
    """One library under test.

    Args:
        label: Its name in the table, with the version.
        queue: The ZooKeeper path whose children are the queue.
        path: The path that its host processes get as argument.
        curator: The compiled program, if this is Curator.
        traced: Whether its hosts record notes for a profile; ours only.
    """

    name: str
    label: str
    queue: str
    path: str
    curator: CuratorProgram | None = None
    traced: bool = False

    def start(self, hosts: Sequence[str], folder: Path) -> HostGroup:
        """Start its host processes; `hosts` has the connection string of each."""
        return HostGroup(self.name, [self._command(each) for each in hosts], folder)

    def _command(self, hosts: str) -> list[str]:
        session_ms = round(SESSION_TIMEOUT.total_seconds() * 1000)
        if self.curator is not None:
            return self.curator.command(hosts, self.path, session_ms)
        module = "tests.benchmark.leader.python_host"
        words = [self.name, hosts, self.path, str(session_ms), *(["traced"] if self.traced else [])]
        return [sys.executable, "-m", module, *words]


def contenders(wanted: Sequence[str], folder: Path) -> tuple[list[Contender], list[str]]:
    """The contenders that can take part, and a line with the reason for each that cannot."""
    import kazoo.version

    found: list[Contender] = []
    skipped: list[str] = []
    if "ours" in wanted:
        found.append(Contender("ours", "ours (confirmed, fenced, guarded)", "/ours/leader-lock", "/ours"))
    if "latch" in wanted:
        found.append(Contender("latch", "our LeaderLatch (unguarded)", "/latch", "/latch"))
    if "curator" in wanted:
        try:
            program = CuratorProgram(folder / "classes")
        except CuratorMissingError as missing:
            skipped.append(f"Curator is skipped: {missing}")
        else:
            label = f"Curator {program.version} LeaderLatch"
            found.append(Contender("curator", label, "/curator", "/curator", program))
    if "kazoo" in wanted:
        label = f"kazoo {kazoo.version.__version__} Election"
        found.append(Contender("kazoo", label, "/kazoo", "/kazoo"))
    return found, skipped
