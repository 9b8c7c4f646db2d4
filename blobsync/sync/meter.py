"""Counts the bytes that arrive, and limits their rate. Thread-safe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from blobsync.errors import BlobSyncConfigError, SyncerClosedError

_BURST_S = 0.1
"""After a pause, the bytes of this many seconds pass without a wait."""


@dataclass(frozen=True, slots=True)
class SyncProgress:
    """How much is here of the releases that are wanted or waited for, as far as their layouts are known.

    Attributes:
        done_bytes: Of objects (packs and large files) that are here or under way.
        total_bytes: Of all their objects, as stored: packs are compressed.
        done_objects: Objects that are here.
        total_objects: All of them.
        fetched_bytes: Came over the network since the start, right or wrong.
        fetched_objects: Arrived and were verified since the start.
    """

    done_bytes: int = 0
    total_bytes: int = 0
    done_objects: int = 0
    total_objects: int = 0
    fetched_bytes: int = 0
    fetched_objects: int = 0


class Meter:
    """Counts bytes of objects that arrive."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._partial: dict[str, int] = {}
        self._partial_bytes = 0
        self.fetched_bytes = 0
        self.fetched_objects = 0

    @property
    def partial_bytes(self) -> int:
        """Of objects that arrive now, with the bytes that an earlier try left."""
        return self._partial_bytes

    def begin(self, name: str, resumed_bytes: int) -> None:
        """An object begins to arrive, or goes on where an earlier try stopped."""
        with self._lock:
            self._partial_bytes += resumed_bytes - self._partial.get(name, 0)
            self._partial[name] = resumed_bytes

    def came(self, name: str, size_bytes: int) -> None:
        """Some bytes of it came. Negative: these bytes were wrong, and come again."""
        with self._lock:
            self._partial[name] = self._partial.get(name, 0) + size_bytes
            self._partial_bytes += size_bytes
            self.fetched_bytes += max(0, size_bytes)

    def end(self, name: str, *, good: bool) -> None:
        """It does not arrive any more: it is here, or its transfer failed."""
        with self._lock:
            self._partial_bytes -= self._partial.pop(name, 0)
            self.fetched_objects += good


class TokenBucket:
    """How long to wait so that a rate is kept. Pure: time comes in. Not thread-safe.

    Args:
        bytes_per_s: Above 0.
    """

    def __init__(self, bytes_per_s: float) -> None:
        if not bytes_per_s > 0:
            raise BlobSyncConfigError(
                f"a limit of {bytes_per_s} bytes a second lets nothing through; say None for no limit"
            )
        self._bytes_per_s = bytes_per_s
        self._paid_until_s = float("-inf")

    def take(self, size_bytes: int, now_s: float) -> float:
        """Count bytes that came; returns for how many seconds their thread must wait."""
        since_s = max(self._paid_until_s, now_s - _BURST_S)
        self._paid_until_s = since_s + size_bytes / self._bytes_per_s
        return max(0.0, self._paid_until_s - now_s)


class Throttle:
    """Makes threads wait so that a rate is kept. Thread-safe.

    Args:
        bytes_per_s: Over all of them; None: no limit.
        stopping: Ends every wait.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        bytes_per_s: float | None,
        stopping: threading.Event,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bucket = None if bytes_per_s is None else TokenBucket(bytes_per_s)
        self._stopping = stopping
        self._clock = clock
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> float:
        """Count bytes that came, and wait; returns for how many seconds.

        Raises:
            SyncerClosedError: told to stop.
        """
        wait_s = 0.0
        if self._bucket is not None and size_bytes:
            with self._lock:
                wait_s = self._bucket.take(size_bytes, self._clock())
        if self._stopping.is_set() or (wait_s and self._stopping.wait(wait_s)):
            raise SyncerClosedError("this syncer was closed while it worked; make a new one to go on")
        return wait_s
