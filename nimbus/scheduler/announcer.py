"""Says in the bucket which releases this scheduler has verified. Thread `nimbus-replicas`.

For a publisher that wants to know before activating (`nimbus pipeline publish --min-replicas`). It is
said again when it changes, and now and then as a sign of life; taken back when the scheduler stops. After a
crash it loses its meaning by its age.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol

import structlog

from blobsync import BlobSyncError, Readiness, ReplicaRecord
from nimbus.ports import Clock
from nimbus.scheduler.signals import Signals

_log = structlog.get_logger(__name__)

REFRESH = timedelta(minutes=2)
"""A fifth of the age at which a record loses its meaning (`blobsync.replicas.MAX_AGE`)."""
LEAST_PAUSE_S = 0.25
"""While releases become ready one after the other."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
"""Between two tries, while the bucket does not take it."""
MOST_NAMED = 1_000
"""Releases that one record may name."""


class Board(Protocol):
    """`blobsync.ReplicaBoard`, seen from here."""

    def announce(self, record: ReplicaRecord) -> None:
        """Say what this host has."""
        ...

    def withdraw(self, host: str) -> None:
        """Take it back."""
        ...


class ReplicaAnnouncer:
    """Keeps this scheduler's record true.

    Args:
        board: Where.
        me: The scheduler's id.
        readiness: What is here; from memory.
        clock: Dates records, for people, and measures pauses.
    """

    def __init__(self, *, board: Board, me: str, readiness: Callable[[], Readiness], clock: Clock) -> None:
        self._board, self._me, self._readiness, self._clock = board, me, readiness, clock
        self._signals = Signals()
        self._said: tuple[str, ...] | None = None
        self._failures = 0
        self._due_s = 0.0
        self._thread = threading.Thread(target=self._run, name="nimbus-replicas", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def changed(self) -> None:
        """What is here may have changed. Any thread: only enqueues."""
        self._signals.look()

    def stop_soon(self) -> None:
        """Take the record back, and end. Returns at once."""
        self._signals.end()

    def stop(self, timeout: timedelta) -> None:
        """Take the record back and end the thread. What takes longer ends with the process."""
        self.stop_soon()
        if self._thread.ident is not None:
            self._thread.join(timeout.total_seconds())

    def _run(self) -> None:
        while not self._signals.asked_to_end(self._until_due_s(), gather_s=LEAST_PAUSE_S):
            try:
                self._look()
            except Exception:  # noqa: BLE001 - the top of the thread: scheduling goes on without it
                _log.exception("announcer_failed")
                self._due_s = self._clock.elapsed_s() + LONGEST_PAUSE_S
        if self._failures:  # the bucket is away: its age will tell, and nobody need wait for that
            return
        try:
            self._board.withdraw(self._me)
        except BlobSyncError as exc:
            _log.info("replicas_left", error=str(exc))  # its age will tell

    def _look(self) -> None:
        """Say what is here, if that is new, or due."""
        ready = _ready(self._readiness())
        now_s = self._clock.elapsed_s()
        if now_s < self._due_s and (self._failures or ready == self._said):
            return
        try:
            self._board.announce(ReplicaRecord(self._me, ready, self._clock.now()))
        except BlobSyncError as exc:
            self._failures += 1
            longest_s = min(FIRST_PAUSE_S * 2 ** min(self._failures, 10), LONGEST_PAUSE_S)
            self._due_s = now_s + random.uniform(longest_s / 2, longest_s)  # noqa: S311 - jitter, no secret
            _log.warning("replicas_not_announced", error=str(exc))
        else:
            self._failures, self._said = 0, ready
            self._due_s = now_s + REFRESH.total_seconds()

    def _until_due_s(self) -> float:
        return max(LEAST_PAUSE_S, self._due_s - self._clock.elapsed_s())


def _ready(readiness: Readiness) -> tuple[str, ...]:
    digests = sorted({ref.digest for ref in readiness.releases if readiness.is_ready(ref)})
    if len(digests) > MOST_NAMED:
        _log.warning("replicas_not_all_named", ready=len(digests), named=MOST_NAMED)
    return tuple(digests[:MOST_NAMED])
