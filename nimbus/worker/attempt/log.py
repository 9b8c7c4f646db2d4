"""An attempt's log within its limit, and its upload to the store that all schedulers read.

The driver and its children append directly to one file. Above the limit, the middle of the file is punched
out repeatedly, so its beginning and its end are left, half of the limit each; offsets stay the same. The
readable text depends only on the file's size and the limit, so any process can continue an upload: the folder
has a record of how many bytes are stored. While the log grows, only its first half can be read, so text that
was read never changes. An unavailable store does not delay the attempt.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from nimbus.domain.ids import AttemptId
from nimbus.domain.wording import format_size
from nimbus.ports import KeptLog, LogArchive
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.verdict import TAIL_BYTES
from nimbus.worker.host.clock import pauses
from nimbus.worker.host.files import read_untrusted
from nimbus.worker.host.loop import Action, Loop

_PUNCH_HOLE = 1 | 2
"""FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE."""
_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = _libc.fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
CHUNK_BYTES = 1 << 20
ENOUGH_BYTES = 64 << 10
"""This much new text is sent immediately."""
_POLL_S = 0.5
LARGEST_EVENT_LOG_BYTES = 64 << 20
"""Compressed size of Spark's event log; about a tenth of the text. A larger one stays in its folder."""
_EVENT_LOGS = "*.zstd*"
"""`<application>.zstd`, with the suffix `.inprogress` if Spark could not finish it."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the readable text: `text`, or a range of the file."""

    size: int
    start: int = 0
    text: bytes | None = None


class LimitedLog:
    """The readable text of one log."""

    def __init__(self, file: Path, limit_bytes: int) -> None:
        self._file, self._limit = file, limit_bytes
        self._half = limit_bytes // 2
        self._freed = self._half
        """The hole reaches from `_half` to this offset."""

    @classmethod
    def of(cls, folder: AttemptFolder) -> LimitedLog:
        """The log in an attempt's folder, within its limit."""
        return cls(folder.log, folder.log_limit())

    def size(self, *, complete: bool) -> int:
        """Length of the readable text in bytes. `complete`: the log does not grow any more."""
        return sum(piece.size for piece in self._pieces(complete))

    def read(self, offset: int, limit: int, *, complete: bool) -> bytes:
        """Read up to `limit` bytes of the readable text."""
        text = bytearray()
        for piece in self._pieces(complete):
            skipped = min(offset, piece.size)
            offset -= skipped
            wanted = min(piece.size - skipped, limit - len(text))
            if wanted > 0:
                text += self._bytes_of(piece, skipped, wanted)
        return bytes(text)

    def free_middle(self) -> None:
        """Free the disk blocks of the unreadable middle. OSError: the file system cannot do that."""
        size = self._file_size()
        end = size - self._half
        if size <= self._limit or end <= self._freed:
            return
        fd = os.open(self._file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            # From the start of the hole, so that blocks that were freed only in part are freed, too.
            if _fallocate(fd, _PUNCH_HOLE, self._half, end - self._half) != 0:
                why = os.strerror(ctypes.get_errno())
                raise OSError(f"the file system of {self._file} cannot free the middle of a file: {why}")
        finally:
            os.close(fd)
        self._freed = end

    def _pieces(self, complete: bool) -> list[_Piece]:
        size = self._file_size()
        if size <= self._limit:
            return [_Piece(size if complete else min(size, self._half))]
        reached = (
            f"\n[nimbus: the log has reached its limit of {format_size(self._limit)}: only its end is kept "
            "from here on, and shown when the attempt has ended]\n"
        ).encode()
        pieces = [_Piece(self._half), _Piece(len(reached), text=reached)]
        if complete:
            left_out = f"[nimbus: {size - 2 * self._half} bytes are left out here]\n".encode()
            pieces += [_Piece(len(left_out), text=left_out), _Piece(self._half, start=size - self._half)]
        return pieces

    def _bytes_of(self, piece: _Piece, skipped: int, wanted: int) -> bytes:
        if piece.text is not None:
            return piece.text[skipped : skipped + wanted]
        with self._file.open("rb") as log:
            log.seek(piece.start + skipped)
            return log.read(wanted)

    def _file_size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0


def log_tail(folder: AttemptFolder) -> str:
    """The end of the log, which contains the error."""
    try:
        with folder.log.open("rb") as log:
            log.seek(max(0, folder.log_size() - TAIL_BYTES))
            return log.read().decode(errors="replace")
    except OSError:  # it was never created, or the task removed it
        return ""


def store_some(folder: AttemptFolder, archive: LogArchive, log: LimitedLog, *, complete: bool) -> int:
    """Store the next piece of the log, at most `CHUNK_BYTES`; return its size.

    Raises the archive's errors; then nothing is recorded, and the next call sends the same piece.
    """
    stored = folder.log_stored()
    data = log.read(stored, CHUNK_BYTES, complete=complete)
    if data:
        archive.append(folder.attempt, stored, data)
        folder.note_log_stored(stored + len(data))
    return len(data)


def store_rest(folder: AttemptFolder, archive: LogArchive) -> None:
    """Store the rest of an ended attempt's log. Raises the archive's errors."""
    log = LimitedLog.of(folder)
    try:
        while store_some(folder, archive, log, complete=True):
            pass
    except OSError:  # the attempt itself may have filled the disk
        folder.empty_scratch()
        raise
    store_event_log(folder, archive)


class LogUploader:
    """Thread `runner-log-uploader` of a runner: follows the log until `finish` is called."""

    def __init__(self, folder: AttemptFolder, open_archive: Callable[[], LogArchive | None]) -> None:
        """`open_archive` is called on the thread: it imports a large client library."""
        self._folder, self._open = folder, open_archive
        self._complete, self._leaving = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="runner-log-uploader", daemon=True)

    def start(self) -> None:
        """Start the thread, once."""
        if self._thread.ident is None:
            self._thread.start()

    def finish(self, deadline_s: float) -> bool:
        """The log is complete: wait until the rest is stored, at most `deadline_s`; True: all of it is."""
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
            complete = self._complete.is_set()  # read before the size, so that the size is final
            gathered = log.size(complete=complete) - self._folder.log_stored()
            now = time.monotonic()
            if gathered > 0 and waiting_since is None:
                waiting_since = now
            # Each piece is an object, so the pieces of a task that logs for hours grow.
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


def store_event_log(folder: AttemptFolder, archive: LogArchive) -> None:
    """Store the event log, of the last application. Safe to repeat. Raises the archive's errors."""
    files = sorted(folder.work.glob(_EVENT_LOGS), key=lambda file: file.lstat().st_mtime_ns)
    if not files:
        return
    data = read_untrusted(files[-1], LARGEST_EVENT_LOG_BYTES)
    if data is None:
        _log.warning("event_log_not_stored", attempt=str(folder.attempt), most_bytes=LARGEST_EVENT_LOG_BYTES)
        return
    for offset in range(0, len(data), CHUNK_BYTES):
        archive.append(folder.attempt, offset, data[offset : offset + CHUNK_BYTES], KeptLog.EVENTS)


class LeftoverLogs:
    """Stores logs of dead runners and executors, each until storage accepts it. Thread `worker-logs`."""

    def __init__(self, logs: LogArchive | None, loop: Loop) -> None:
        """If `logs` is None, no log is stored."""
        self._logs, self._loop = logs, loop
        self._unstored: set[AttemptId] = set()
        self.error = ""
        """Why storage did not accept the last log; empty: it did."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="worker-logs")

    @property
    def count(self) -> int:
        """The number of logs that are not stored yet. Any thread."""
        return len(self._unstored)

    def store(self, folder: AttemptFolder, then: Action) -> None:
        """Store the rest of an attempt's log, then run `then` on the worker's thread."""
        self._store(folder, then, pauses(1.0, 30.0))

    def _store(self, folder: AttemptFolder, then: Action, waits: Iterator[float]) -> None:
        if self._logs is None or not folder.log_size():
            self._unstored.discard(folder.attempt)
            then()
            return
        self._unstored.add(folder.attempt)
        storing = self._pool.submit(store_rest, folder, self._logs)
        storing.add_done_callback(
            lambda done: self._loop.post(partial(self._stored, folder, then, done, waits))
        )

    def _stored(
        self, folder: AttemptFolder, then: Action, done: Future[None], waits: Iterator[float]
    ) -> None:
        error = None if done.cancelled() else done.exception()
        self.error = "" if error is None else str(error)
        if error is not None:
            _log.warning("log_not_stored", attempt=str(folder.attempt), error=str(error)[:300])
            self._loop.after(next(waits), partial(self._store, folder, then, waits))
        elif not done.cancelled():
            self._unstored.discard(folder.attempt)
            then()

    def close(self) -> None:
        """End the thread after its current log; the other logs are stored after the next start."""
        self._pool.shutdown(wait=False, cancel_futures=True)
