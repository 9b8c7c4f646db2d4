"""How far a publish is. Written by its threads, read by the caller's."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum


class PublishPhase(StrEnum):
    """What a publish does. Packing and uploading overlap; hashing is over when they begin."""

    HASHING = "hashing"
    PACKING = "packing"
    UPLOADING = "uploading"


@dataclass(frozen=True, slots=True)
class PublishProgress:
    """How far one phase is: files when hashing, else distinct blobs; bytes before compression."""

    phase: PublishPhase
    done_count: int
    total_count: int
    done_bytes: int
    total_bytes: int


class Meter:
    """Counts one phase. Thread-safe."""

    def __init__(self, phase: PublishPhase) -> None:
        self._phase = phase
        self._lock = threading.Lock()
        self._count = self._total_count = 0
        self._bytes = self._total_bytes = 0

    def expect(self, count: int, size_bytes: int) -> None:
        """So much more is to be done."""
        with self._lock:
            self._total_count += count
            self._total_bytes += size_bytes

    def add(self, count: int, size_bytes: int) -> None:
        """So much more is done."""
        with self._lock:
            self._count += count
            self._bytes += size_bytes

    def now(self) -> PublishProgress:
        """How far it is."""
        with self._lock:
            # A file may have grown since it was measured.
            total_bytes = max(self._total_bytes, self._bytes)
            return PublishProgress(self._phase, self._count, self._total_count, self._bytes, total_bytes)


class Share:
    """What one upload adds to a meter: bytes as sent in, bytes before compression out; never twice.

    An upload that begins anew counts on only where it had been before.
    """

    def __init__(self, meter: Meter, raw_bytes: int, stored_bytes: int) -> None:
        self._meter, self._raw_bytes, self._stored_bytes = meter, raw_bytes, max(1, stored_bytes)
        self._best = 0

    def reached(self, sent_bytes: int) -> bool:
        """So many bytes of it are sent in this try. Whether that is further than ever before."""
        if sent_bytes <= self._best:
            return False
        self._meter.add(0, self._raw(sent_bytes) - self._raw(self._best))
        self._best = sent_bytes
        return True

    def done(self, count: int) -> None:
        """All of it is there, which is so many blobs."""
        self._meter.add(count, self._raw_bytes - self._raw(self._best))

    def _raw(self, sent_bytes: int) -> int:
        return min(self._raw_bytes, self._raw_bytes * sent_bytes // self._stored_bytes)
