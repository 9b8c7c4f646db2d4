"""One standalone worker of the local stack."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from nimbus.localstack.process import ManagedProcess

STARTED = b"worker_started"
"""The log line of a worker that has registered."""


class WorkerProcess(ManagedProcess):
    """A worker daemon. It has no port, so its log shows when it is ready."""

    def __init__(
        self, *, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        super().__init__(name=name, log=log, environment=environment, start_deadline=timedelta(seconds=60))
        self._words = list(command)
        self._begin = 0

    def _command(self) -> Sequence[str]:
        self._begin = self.log.stat().st_size if self.log.exists() else 0
        return self._words

    def _answers(self) -> bool:
        with self.log.open("rb") as log:
            log.seek(self._begin)
            return STARTED in log.read()
