"""Progress of publishes, syncs and collections in the bucket, and limits of rates. Thread-safe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from blobsync.errors import BlobSyncConfigError, SyncerClosedError

_BURST_S = 0.1
"""After a pause, the bytes of this many seconds pass without a wait."""


class WorkPhase(StrEnum):
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
    """Progress of one phase.

    Attributes:
        done_count: Files hashed, distinct blobs packed or uploaded, objects listed or deleted, releases read.
        total_count: Total of the same; 0 if it is not known.
        done_bytes: Bytes of the same, before compression; 0 in a collection.
        total_bytes: Total of these bytes.
    """

    phase: WorkPhase
    done_count: int
    total_count: int
    done_bytes: int = 0
    total_bytes: int = 0


class Meter:
    """Counts one phase."""

    def __init__(self, phase: WorkPhase) -> None:
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
        """Add to the finished part."""
        with self._lock:
            self._count += count
            self._bytes += size_bytes

    def now(self) -> Progress:
        """Progress of the phase."""
        with self._lock:
            # A file may have grown since it was measured.
            total_bytes = max(self._total_bytes, self._bytes)
            return Progress(self._phase, self._count, self._total_count, self._bytes, total_bytes)


class Share:
    """The part of one upload in a meter, in bytes before compression.

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
        """Note that the upload is complete; it has `count` blobs."""
        self._meter.add(count, self._raw_bytes - self._raw(self._best))

    def _raw(self, sent_bytes: int) -> int:
        return min(self._raw_bytes, self._raw_bytes * sent_bytes // self._stored_bytes)


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """Progress of the releases that are wanted or that a call waits for, if their layouts are known.

    Attributes:
        done_bytes: Bytes of objects (packs and large files) that are here or being fetched.
        total_bytes: Bytes of all their objects, as stored: packs are compressed.
        done_objects: Objects that are here.
        total_objects: All of them.
        fetched_bytes: Bytes received over the network since the start, valid or not.
        fetched_objects: Objects that were fetched and verified since the start.
    """

    done_bytes: int = 0
    total_bytes: int = 0
    done_objects: int = 0
    total_objects: int = 0
    fetched_bytes: int = 0
    fetched_objects: int = 0


class Arrivals:
    """Counts the objects that a sync receives, and their bytes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partial: dict[str, int] = {}
        self._partial_bytes = 0
        self.fetched_bytes = 0
        self.fetched_objects = 0

    @property
    def partial_bytes(self) -> int:
        """Bytes of the objects that are being received, with those of earlier tries."""
        return self._partial_bytes

    def begin(self, name: str, resumed_bytes: int) -> None:
        """Note that a transfer begins, or continues where an earlier try stopped."""
        with self._lock:
            self._partial_bytes += resumed_bytes - self._partial.get(name, 0)
            self._partial[name] = resumed_bytes

    def came(self, name: str, size_bytes: int) -> None:
        """Note that bytes of an object arrived. Negative: these bytes were wrong, and are fetched again."""
        with self._lock:
            self._partial[name] = self._partial.get(name, 0) + size_bytes
            self._partial_bytes += size_bytes
            self.fetched_bytes += max(0, size_bytes)

    def end(self, name: str, *, good: bool) -> None:
        """Note that a transfer has ended: the object is here, or its transfer failed."""
        with self._lock:
            self._partial_bytes -= self._partial.pop(name, 0)
            self.fetched_objects += good


class Throttle:
    """Makes threads wait so that a rate is kept.

    Args:
        bytes_per_s: Over all threads; None: no limit.

    Raises:
        BlobSyncConfigError: the rate is not above 0.
    """

    def __init__(
        self,
        bytes_per_s: float | None,
        stopping: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if bytes_per_s is not None and not bytes_per_s > 0:
            raise BlobSyncConfigError(
                f"a limit of {bytes_per_s} bytes a second lets nothing through; use None for no limit"
            )
        self._bytes_per_s, self._stopping, self._clock = bytes_per_s, stopping, clock
        self._lock = threading.Lock()
        self._paid_until_s = float("-inf")

    def take(self, size_bytes: int) -> float:
        """Count bytes that arrived, and wait. Returns the seconds waited.

        SyncerClosedError once `stopping` is set.
        """
        wait_s = 0.0
        if self._bytes_per_s is not None and size_bytes:
            with self._lock:
                now_s = self._clock()
                since_s = max(self._paid_until_s, now_s - _BURST_S)
                self._paid_until_s = since_s + size_bytes / self._bytes_per_s
                wait_s = max(0.0, self._paid_until_s - now_s)
        if self._stopping.is_set() or (wait_s and self._stopping.wait(wait_s)):
            raise SyncerClosedError
        return wait_s
