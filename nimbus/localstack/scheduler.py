"""A scheduler or a worker of the local stack, as a child process."""

from __future__ import annotations

import http.client
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from nimbus.localstack.ports import LOOPBACK, require_free
from nimbus.localstack.process import ManagedProcess

_ASK_DEADLINE_S = 2.0


class SchedulerProcess(ManagedProcess):
    """A scheduler daemon. It is ready when `GET /readyz` returns 200.

    Args:
        name: Its id, such as `scheduler-1`.
        command: Its command line.
        port: The port of its API, as in its configuration.
        log: File for its output.
        environment: Added to the environment of the process.
    """

    def __init__(
        self, *, name: str, command: Sequence[str], port: int, log: Path, environment: Mapping[str, str]
    ) -> None:
        super().__init__(name=name, log=log, environment=environment, start_deadline=timedelta(seconds=60))
        self.port = port
        self._words = list(command)

    @property
    def url(self) -> str:
        """`http://127.0.0.1:<port>`."""
        return f"http://{LOOPBACK}:{self.port}"

    def _command(self) -> Sequence[str]:
        require_free(self.port, self.name)
        return self._words

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=_ASK_DEADLINE_S)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


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
