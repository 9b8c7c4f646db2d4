"""Bytes a second, over all threads that share it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from blobsync.errors import BlobSyncConfigError, SyncerClosedError

_BURST_S = 0.1
"""So much of a second may be made up for after a pause."""


class TokenBucket:
    """When the next bytes may go on. Pure: time comes in. Not thread-safe.

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
        """Take bytes that came, and say for how many seconds whoever has them shall wait."""
        since_s = max(self._paid_until_s, now_s - _BURST_S)
        self._paid_until_s = since_s + size_bytes / self._bytes_per_s
        return max(0.0, self._paid_until_s - now_s)


class Throttle:
    """Lets threads wait. Thread-safe.

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
        """Wait until these bytes may go on; say for how many seconds that was.

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
