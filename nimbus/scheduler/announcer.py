"""Writes a record to the bucket of the releases that this scheduler has verified. Thread `nimbus-replicas`.

A publisher reads the records before it activates (`nimbus pipeline publish --min-replicas`). A record is also
a sign of life: it is removed when the scheduler stops, and expires by its age after a crash.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import structlog

from blobsync import BlobSyncError, Readiness, ReplicaBoard, ReplicaRecord
from nimbus.ports import Clock
from nimbus.scheduler.followers import Follower

_log = structlog.get_logger(__name__)

REFRESH = timedelta(minutes=2)
"""A fifth of the age at which a record expires (`blobsync.replicas.MAX_AGE`)."""
LEAST_PAUSE_S = 0.25
"""Shortest pause between two writes, while releases become ready one after the other."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
"""Longest pause between two tries, while the bucket refuses them."""
MAX_NAMED = 1_000
"""Limit of releases in one record."""


class ReplicaAnnouncer(Follower):
    """Keeps this scheduler's record up to date. `me` is the scheduler's id."""

    def __init__(
        self, *, board: ReplicaBoard, me: str, readiness: Callable[[], Readiness], clock: Clock
    ) -> None:
        super().__init__("nimbus-replicas", LONGEST_PAUSE_S, gather_s=LEAST_PAUSE_S)
        self._board, self._me, self._readiness, self._clock = board, me, readiness, clock
        self._said: tuple[str, ...] | None = None
        self._failures = 0
        self._due_s = 0.0

    def _poll(self) -> None:
        self._pause_s = LONGEST_PAUSE_S  # also after a defect
        ready = _ready(self._readiness())
        now_s = self._clock.elapsed_s()
        if now_s >= self._due_s or (ready != self._said and not self._failures):
            self._announce(ready, now_s)
        self._pause_s = max(LEAST_PAUSE_S, self._due_s - self._clock.elapsed_s())

    def _announce(self, ready: tuple[str, ...], now_s: float) -> None:
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

    def _clean_up(self) -> None:
        if self._failures:  # the bucket is unavailable: the record expires by its age
            return
        try:
            self._board.withdraw(self._me)
        except BlobSyncError as exc:
            _log.info("replicas_left", error=str(exc))  # the record expires by its age


def _ready(readiness: Readiness) -> tuple[str, ...]:
    digests = sorted({ref.digest for ref in readiness.releases if readiness.is_ready(ref)})
    if len(digests) > MAX_NAMED:
        _log.warning("replicas_not_all_named", ready=len(digests), named=MAX_NAMED)
    return tuple(digests[:MAX_NAMED])
