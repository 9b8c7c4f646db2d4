"""A runner's handle of the JVM that its attempt has: from before the driver starts until it is clear."""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Mapping
from pathlib import Path

import structlog

from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.host import procfs, remains, usage
from nimbus.worker.host.files import remove_tree
from nimbus.worker.host.procfs import ProcessId
from nimbus.worker.host.usage import Usage
from nimbus.worker.jvm.keeper import CLEAN, CLOSE, LONGEST, OPEN, OPENED, OVER
from nimbus.worker.launcher import memory_file

_CLOSE_S = 5.0
"""It takes less than 0.1 s, unless the JVM collects garbage or the host is overloaded."""
_WAREHOUSE = "spark.sql.warehouse.dir"

_log = structlog.get_logger("nimbus.worker.runner")


class Loan:
    """The JVM of one attempt."""

    def __init__(self, keeper: ProcessId, place: Path, connection: socket.socket) -> None:
        """`place`: the keeper's folder. `connection`: to the keeper, for this attempt alone."""
        self._keeper, self._connection = keeper, connection
        self._tmp = place / "work" / "tmp"
        connection.settimeout(_CLOSE_S)

    def lend(
        self, folder: AttemptFolder, conf: Mapping[str, str], environment: Mapping[str, str], log: int
    ) -> int:
        """Give the JVM the attempt's folder, log and properties; return a descriptor with its gateway.

        Its working directory becomes the attempt's folder for temporary files, because a JVM cannot change
        its own; a link replaces it, because classes remember the path of `java.io.tmpdir`. The keeper is
        recorded in `folder`, for whoever ends the attempt. OSError: a folder cannot be used, or the keeper
        has ended.

        Args:
            folder: The attempt's folder.
            conf: Spark's properties for the attempt.
            environment: Variables for Python workers that the JVM lacks.
            log: Where its output goes; it is not closed.
        """
        self._folder = folder
        folder.note_jvm_keeper(self._keeper)
        folder.scratch.rmdir()
        self._tmp.rename(folder.scratch)
        self._tmp.symlink_to(folder.scratch)
        here = str(folder.scratch)
        properties = {
            _WAREHOUSE: f"file:{here}/spark-warehouse",
            **{f"spark.executorEnv.{name}": value for name, value in environment.items()},
            **conf,
            "user.dir": here,
        }
        usage.forget_peaks(self.processes())
        self._before = usage.of_living(self.processes())
        reads, writes = os.pipe2(os.O_CLOEXEC)
        try:
            with memory_file(json.dumps(properties).encode()) as file:
                socket.send_fds(self._connection, [OPEN], [file, log, writes])
        finally:
            os.close(writes)
        return reads

    def processes(self) -> list[int]:
        """Pids of the keeper and all below it."""
        return [self._keeper.pid, *procfs.below(self._keeper.pid)]

    def used(self) -> Usage | None:
        """What the JVM and all below it used since `lend`; None: it has died. Call it before `end`."""
        now = usage.of_living(self.processes())
        if not procfs.is_alive(self._keeper):
            return None
        return now._replace(cpu_ms=now.cpu_ms - self._before.cpu_ms)

    def end(self, *, clean: bool) -> str:
        """Give the JVM back if `clean`, else kill it with all below it; return why it was not kept."""
        why = "the driver did not come to a good end"
        if clean:
            try:
                why = self._close()
            except OSError as exc:
                is_gone = isinstance(exc, BrokenPipeError | ConnectionResetError)
                why = "it has ended" if is_gone else f"its keeper did not answer: {exc}"
        if why:
            _log.info("jvm_not_kept", because=why)
            remains.kill_jvm_keeper(self._keeper)
        self._connection.close()
        return why

    def _close(self) -> str:
        if not select.select([self._connection], [], [], 0)[0] or self._connection.recv(LONGEST) != OPENED:
            return "it had not started yet"
        self._connection.send(CLOSE)
        told = self._connection.recv(LONGEST)
        if told != CLEAN:
            return told.decode(errors="replace") or "it has ended"
        self._tmp.unlink()
        for path in self._folder.scratch.iterdir():
            remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        self._folder.scratch.rename(self._tmp)
        self._folder.forget_jvm_keeper()  # from now on it may have another attempt
        self._connection.send(OVER)
        self._connection.recv(1)
        return ""
