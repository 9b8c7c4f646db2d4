"""The test's handle of a participant process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from nimbus.localstack.process import ManagedProcess
from tests.leader.chaos.election.history_lines import Did, Line, Reader

_REPOSITORY = Path(__file__).parents[4]


class ParticipantProcess(ManagedProcess):
    """One participant. It is ready when it has joined the queue.

    Args:
        name: Its id; also names its files in `folder`.
        folder: For its history and its log.
        hosts: Addresses of ZooKeeper.
        root: Path of the election.
        session: Timeout of its session.
        pace: Factor by which it asks and writes more slowly than usual.
    """

    def __init__(
        self, name: str, folder: Path, *, hosts: str, root: str, session: timedelta, pace: float = 1.0
    ) -> None:
        environment = {"PYTHONPATH": str(_REPOSITORY)}
        super().__init__(name=name, log=folder / f"{name}.log", environment=environment)
        self._history = folder / f"{name}.jsonl"
        self._arguments = [hosts, root, name, str(session.total_seconds()), str(self._history), str(pace)]
        self._reader = Reader(self._history)
        self._starts = 0
        self.lines: list[Line] = []

    def read(self) -> list[Line]:
        """Read the new lines of its history, and add them to `lines`."""
        news = self._reader.news()
        self.lines += news
        return news

    def exit_status(self, limit: timedelta) -> int | None:
        """Wait for its end. Returns None if it does not end."""
        if self._process is None:
            return None
        try:
            return self._process.wait(limit.total_seconds())
        except subprocess.TimeoutExpired:
            return None

    def _command(self) -> Sequence[str]:
        self._starts = self._count_starts()
        return [sys.executable, "-m", "tests.leader.chaos.election.participant", *self._arguments]

    def _answers(self) -> bool:
        return self._count_starts() > self._starts

    def _count_starts(self) -> int:
        self.read()
        return sum(line.did is Did.STARTED for line in self.lines)
