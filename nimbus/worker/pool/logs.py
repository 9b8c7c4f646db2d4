"""Stores the logs of an executor's attempts: short ones together, long ones while they grow.

Thread `executor-logs`. An unavailable store does not delay attempts.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from nimbus.domain.ids import AttemptId
from nimbus.ports import LogArchive
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.log import CHUNK_BYTES, ENOUGH_BYTES, LimitedLog, store_rest, store_some
from nimbus.worker.host.clock import pauses
from nimbus.worker.pool.messages import Unstored

SMALL_BYTES = 64 << 10
"""Largest log that is stored with others, if none of it was stored before its attempt ended."""
_TOGETHER_BYTES = 1 << 20
_GATHER_S = 0.5
"""Logs of attempts that end within this time are stored together."""
_FOLLOW_EVERY_S = 1.0
_PIECES_AT_ONCE = 16
"""Most consecutive pieces of one fast-growing log, before other logs are stored."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Growing:
    folder: AttemptFolder
    log: LimitedLog
    next_s: float = field(default_factory=lambda: time.monotonic() + _FOLLOW_EVERY_S)
    sent: int = 0


class Logs:
    """One thread calls `follow`, `ended`, `close`. Stored logs are removed from the disk."""

    def __init__(
        self,
        open_archive: Callable[[], LogArchive | None],
        changed: Callable[[Unstored], None] = lambda _: None,
    ) -> None:
        """Both are called on the thread; `changed` only enqueues."""
        self._open, self._changed = open_archive, changed
        self._unstored = Unstored()
        self._archive: LogArchive | None = None
        self._opened = False
        self._growing: dict[AttemptId, _Growing] = {}
        self._ended: deque[AttemptFolder] = deque()
        self._in_pieces: set[AttemptId] = set()
        """Attempts of which a piece may be stored, recorded or not: readers then look only for pieces."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="executor-logs", daemon=True)
        self._thread.start()

    def follow(self, folder: AttemptFolder, limit_bytes: int) -> None:
        """Store a log while it grows, within its limit."""
        with self._lock:
            self._growing[folder.attempt] = _Growing(folder, LimitedLog(folder.log, limit_bytes))
        self._wake.set()

    def ended(self, folder: AttemptFolder) -> None:
        """Store the rest of a log, and remove the attempt's folder."""
        with self._lock:
            self._growing.pop(folder.attempt, None)
            self._ended.append(folder)
        self._wake.set()

    def close(self, deadline_s: float) -> None:
        """Store the remaining logs within `deadline_s`; a worker stores the rest."""
        self._closing = True
        self._wake.set()
        self._thread.join(deadline_s)

    def _run(self) -> None:
        waits = pauses(0.5, 10.0)
        while not (self._closing and not self._ended):
            self._wake.wait(_FOLLOW_EVERY_S if self._growing else None)
            self._wake.clear()
            if not self._closing:
                time.sleep(_GATHER_S)
            try:
                self._store()
                waits = pauses(0.5, 10.0)
                self._tell(Unstored())
            except Exception as exc:  # noqa: BLE001 - top of the thread: any trouble of the store may heal
                _log.warning("logs_not_stored", waiting=len(self._ended), error=str(exc)[:300])
                self._tell(Unstored(len(self._ended) + len(self._growing), str(exc)))
                time.sleep(next(waits))
                self._wake.set()

    def _tell(self, unstored: Unstored) -> None:
        if unstored != self._unstored:
            self._unstored = unstored
            self._changed(unstored)

    def _store(self) -> None:
        if not self._opened:
            self._archive, self._opened = self._open(), True
        for _ in range(len(self._ended)):
            if not self._ended:
                break
            self._store_ended()
        now = time.monotonic()
        with self._lock:
            all_growing = list(self._growing.values())
        for growing in all_growing:
            gathered = growing.log.size(complete=False) - growing.folder.log_stored()
            if gathered and (now >= growing.next_s or gathered >= ENOUGH_BYTES):
                self._store_growing(growing, now)

    def _store_growing(self, growing: _Growing, now: float) -> None:
        if self._archive is None:
            return
        self._in_pieces.add(growing.folder.attempt)
        for _ in range(_PIECES_AT_ONCE):
            size = store_some(growing.folder, self._archive, growing.log, complete=False)
            growing.sent += 1
            if size < CHUNK_BYTES:
                break
        else:
            self._wake.set()
        # Each piece is an object, so the pieces of a task that logs for hours grow.
        growing.next_s = now + min(_FOLLOW_EVERY_S + growing.sent / 60, 10.0)

    def _store_ended(self) -> None:
        """Store logs of ended attempts. A log that cannot be stored waits without delaying others."""
        together: dict[AttemptId, bytes] = {}
        done: list[AttemptFolder] = []
        failed: list[AttemptFolder] = []
        error: Exception | None = None
        try:
            while self._ended and sum(map(len, together.values())) < _TOGETHER_BYTES:
                folder = self._ended.popleft()
                try:
                    self._store_one(folder, together)
                    done.append(folder)
                except Exception as exc:  # noqa: BLE001 - the store failed, or the task damaged its folder
                    error = exc
                    failed.append(folder)
            if together and self._archive is not None:
                self._archive.append_all(together)
        except Exception:
            failed += done
            done = []
            raise
        finally:
            self._ended.extend(failed)
        for folder in done:
            self._in_pieces.discard(folder.attempt)
            folder.discard()
        if error is not None:
            raise error

    def _store_one(self, folder: AttemptFolder, together: dict[AttemptId, bytes]) -> None:
        """Store a log in pieces, or add it to `together`."""
        if self._archive is None or not folder.log_size():
            return
        if folder.log_size() > SMALL_BYTES or folder.attempt in self._in_pieces:
            store_rest(folder, self._archive)
        else:
            together[folder.attempt] = LimitedLog.of(folder).read(0, SMALL_BYTES, complete=True)
