"""How far a publish, or a collection in the bucket, is. Its threads count; the caller's thread reads."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """A part of the work."""

    # Of a publish. Packing and uploading overlap; hashing ends before they begin.
    HASHING = "hashing"
    PACKING = "packing"
    UPLOADING = "uploading"
    # Of a collection. It lists and reads again before it deletes.
    LISTING = "listing"
    READING = "reading"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far one phase is.

    Attributes:
        phase: Which.
        done_count: Files hashed, distinct blobs packed or uploaded, objects listed or deleted, releases read.
        total_count: Of how many; 0 if that is not known.
        done_bytes: Of the same, before compression; 0 in a collection.
        total_bytes: Of how many.
    """

    phase: Phase
    done_count: int
    total_count: int
    done_bytes: int = 0
    total_bytes: int = 0


class Meter:
    """Counts one phase. Thread-safe."""

    def __init__(self, phase: Phase) -> None:
        self._phase = phase
        self._lock = threading.Lock()
        self._count = self._total_count = 0
        self._bytes = self._total_bytes = 0

    def expect(self, count: int, size_bytes: int) -> None:
        """Add to the totals."""
        with self._lock:
            self._total_count += count
            self._total_bytes += size_bytes

    def add(self, count: int, size_bytes: int) -> None:
        """Add to what is done."""
        with self._lock:
            self._count += count
            self._bytes += size_bytes

    def now(self) -> Progress:
        """How far it is."""
        with self._lock:
            # A file may have grown since it was measured.
            total_bytes = max(self._total_bytes, self._bytes)
            return Progress(self._phase, self._count, self._total_count, self._bytes, total_bytes)


class Share:
    """What one upload adds to a meter, in bytes before compression.

    An upload that starts again adds nothing until it passes the place that it had reached before.
    """

    def __init__(self, meter: Meter, raw_bytes: int, stored_bytes: int) -> None:
        self._meter, self._raw_bytes, self._stored_bytes = meter, raw_bytes, max(1, stored_bytes)
        self._best = 0

    def reached(self, sent_bytes: int) -> bool:
        """Note how many bytes this try has sent. True if no earlier try sent as many."""
        if sent_bytes <= self._best:
            return False
        self._meter.add(0, self._raw(sent_bytes) - self._raw(self._best))
        self._best = sent_bytes
        return True

    def done(self, count: int) -> None:
        """The upload is complete; it holds `count` blobs."""
        self._meter.add(count, self._raw_bytes - self._raw(self._best))

    def _raw(self, sent_bytes: int) -> int:
        return min(self._raw_bytes, self._raw_bytes * sent_bytes // self._stored_bytes)
