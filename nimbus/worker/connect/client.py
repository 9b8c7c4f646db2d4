"""The driver's side of Spark Connect: the session for the task's code. Driver, main thread."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nimbus.worker.host.files import write_atomic

_PROGRESS_EVERY_S = 1.0
_MAX_RETRIES = 6
_LONGEST_PAUSE_MS = 5_000
"""About 15 s in total. pyspark's default is ten minutes, but a restarted server has lost its sessions."""


def import_client() -> None:
    """Import a driver's modules. This creates no channel, so gRPC starts no thread."""
    import grpc._channel  # noqa: F401 - the first channel would import it
    import pyspark.sql.connect.session  # noqa: F401 - imported for its time


def make_session(folder: Path) -> Any:
    """Create the session that `SparkSession.builder.getOrCreate()` returns. Sends nothing yet."""
    from pyspark.sql.connect.client.core import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession

    builder = DefaultChannelBuilder(os.environ["SPARK_REMOTE"])
    session: Any = SparkSession.builder.channelBuilder(builder).create()
    session.client.set_retry_policies(
        [DefaultPolicy(max_retries=_MAX_RETRIES, max_backoff=_LONGEST_PAUSE_MS)]
    )
    # The runner releases it. Code that stops its session and creates another gets the same one again.
    session.release_session_on_close = False
    session.registerProgressHandler(ConnectProgress(folder / "progress.json"))
    return session


def bind_session(session: Any, server_session_id: str) -> None:
    """Send the server's own session id with each request, so that a restarted server refuses it."""
    session.client._server_session_id = server_session_id


class ConnectProgress:
    """Writes the server's progress reports to `progress.json`, in the form of `spark_figures`."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._stages: dict[int, tuple[int, int, bool]] = {}
        self._written_s = float("-inf")

    def __call__(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        """See `pyspark.sql.connect.shell.progress.ProgressHandler`. On the thread that waits for a result."""
        del operation_id
        for stage in stages or ():
            self._stages[stage.stage_id] = (stage.num_tasks, stage.num_completed_tasks, stage.done)
        now_s = time.monotonic()
        if now_s - self._written_s < _PROGRESS_EVERY_S and not done:
            return
        self._written_s = now_s
        figures = {
            "stages": len(self._stages),
            "stages_active": sum(not done for _, _, done in self._stages.values()),
            "tasks_total": sum(total for total, _, _ in self._stages.values()),
            "tasks_done": sum(done for _, done, _ in self._stages.values()),
            "tasks_active": inflight_tasks,
            "tasks_failed": 0,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_atomic(self._place, json.dumps(figures).encode())
