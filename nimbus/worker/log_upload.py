"""Brings an attempt's log to where every scheduler can read it, while it grows and after.

A store that is away never holds up the attempt: the bytes stay in the folder, and how far they are stored
is noted beside them, so that anybody goes on from there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from nimbus.ports import LogArchive
from nimbus.worker.attempt_folder import AttemptFolder
from nimbus.worker.event_log import store_event_log
from nimbus.worker.failure import TAIL_BYTES
from nimbus.worker.limited_log import LimitedLog
from nimbus.worker.retry import pauses

CHUNK_BYTES = 1 << 20
ENOUGH_BYTES = 64 << 10
"""So much that has gathered is sent at once."""
_POLL_S = 0.5

_log = structlog.get_logger(__name__)


def log_tail(folder: AttemptFolder) -> str:
    """The end of the log: what went wrong stands there."""
    try:
        with folder.log.open("rb") as log:
            log.seek(max(0, folder.log_size() - TAIL_BYTES))
            return log.read().decode(errors="replace")
    except OSError:  # it was never made, or the task removed it
        return ""


def store_some(folder: AttemptFolder, archive: LogArchive, log: LimitedLog, *, complete: bool) -> int:
    """Store the next piece of the log, at most `CHUNK_BYTES`; how many bytes that was.

    Raises whatever the archive raises; then nothing is noted, and the same piece comes again.
    """
    stored = folder.log_stored()
    data = log.read(stored, CHUNK_BYTES, complete=complete)
    if data:
        archive.append(folder.attempt, stored, data)
        folder.note_log_stored(stored + len(data))
    return len(data)


def store_rest(folder: AttemptFolder, archive: LogArchive) -> None:
    """Store all that is not stored yet of an attempt that has ended. Raises whatever the archive raises."""
    log = LimitedLog.of(folder)
    while store_some(folder, archive, log, complete=True):
        pass
    store_event_log(folder, archive)


class LogUploader:
    """Thread `runner-log-uploader` of a runner: follows the log until told that it is complete."""

    def __init__(self, folder: AttemptFolder, open_archive: Callable[[], LogArchive | None]) -> None:
        """`open_archive` is called on the thread: it imports a large client library."""
        self._folder, self._open = folder, open_archive
        self._complete, self._leaving = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="runner-log-uploader", daemon=True)

    def start(self) -> None:
        """Start following, unless that was done."""
        if self._thread.ident is None:
            self._thread.start()

    def finish(self, deadline_s: float) -> bool:
        """Say that the log is complete, and wait for the rest, at most `deadline_s`.

        Returns:
            Whether all of it is stored.
        """
        self._complete.set()
        self._thread.join(deadline_s)
        self._leaving.set()
        return not self._thread.is_alive()

    def _run(self) -> None:
        for pause in pauses(0.2, 10.0):
            try:
                self._follow()
            except Exception as exc:  # noqa: BLE001 - top of the thread: any trouble of the store may heal
                _log.warning("log_not_stored", attempt=str(self._folder.attempt), error=str(exc)[:300])
            else:
                return
            if self._leaving.wait(pause):
                return

    def _follow(self) -> None:
        archive = self._open()
        if archive is None:
            return
        waiting_since: float | None = None
        sent = 0
        log = LimitedLog.of(self._folder)
        while not self._leaving.is_set():
            complete = self._complete.is_set()  # looked at before the size: what came before it is in the log
            gathered = log.size(complete=complete) - self._folder.log_stored()
            now = time.monotonic()
            if gathered > 0 and waiting_since is None:
                waiting_since = now
            # One object a piece: a task that logs for hours gets larger pieces as it goes on.
            longest_s = min(1.0 + sent / 60, 10.0)
            due = waiting_since is not None and now - waiting_since >= longest_s
            if gathered > 0 and (complete or due or gathered >= ENOUGH_BYTES):
                store_some(self._folder, archive, log, complete=complete)
                waiting_since, sent = None, sent + 1
            elif complete:
                store_event_log(self._folder, archive)
                return
            else:
                self._complete.wait(_POLL_S)
