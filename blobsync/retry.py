"""Retries: bounded, with jitter, interruptible."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from blobsync.errors import (
    BlobSyncConfigError,
    BlobSyncError,
    CorruptBlobError,
    InvalidLayoutError,
    InvalidManifestError,
    InvalidPackError,
)
from blobsync.log import Log

_log = Log(__name__)
Result = TypeVar("Result")

WRONG_BYTES_TRIES = 2
"""How often one call reads wrong bytes before it fails. Damage in transit heals, other damage does not."""
WRONG_BYTES = (CorruptBlobError, InvalidLayoutError, InvalidManifestError, InvalidPackError)
"""The errors that wrong bytes cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long to wait between tries. Checked once, here, then trusted.

    Args:
        first_wait: Upper bound of the first random wait; it doubles with each failure in a row.
        max_wait: Upper bound of all waits.
        deadline: How long a blocking call retries. Background work does not give up: it retries every
            `max_wait`.
    """

    first_wait: timedelta = timedelta(seconds=0.5)
    max_wait: timedelta = timedelta(seconds=30)
    deadline: timedelta = timedelta(seconds=60)

    def __post_init__(self) -> None:
        if not timedelta(0) < self.first_wait <= self.max_wait:
            raise BlobSyncConfigError(
                f"first_wait ({self.first_wait}) must be above 0 and at most max_wait ({self.max_wait})"
            )
        if self.deadline <= timedelta(0):
            raise BlobSyncConfigError(f"deadline ({self.deadline}) must be above 0")

    def wait_s(self, failures: int, rng: Callable[[], float] = random.random) -> float:
        """Seconds to wait after that many failures in a row: from half of the bound to the bound.

        At least half, since shorter waits of many artifacts would be a burst on a server that recovers.
        """
        bound: float = min(
            self.first_wait.total_seconds() * 2 ** min(failures - 1, 32), self.max_wait.total_seconds()
        )
        return bound * (0.5 + rng() / 2)


def read_again_if_wrong(read: Callable[[bool], Result]) -> Result:
    """Read, and if the bytes are wrong, read once more at once: see `WRONG_BYTES_TRIES`.

    Args:
        read: Safe to repeat. Its argument is True if the bytes were wrong before.

    Raises:
        BlobSyncError: as of `read`.
    """
    try:
        return read(False)
    except WRONG_BYTES:
        return read(True)


def call_retrying(
    call: Callable[[], Result], policy: RetryPolicy, *, what: str, stopping: threading.Event | None = None
) -> Result:
    """Call until success, an error that is not retryable, wrong bytes for the second time, or the deadline.

    Args:
        call: Safe to repeat.
        policy: Waits and deadline.
        what: For the log.
        stopping: When set, the last error is raised at once.

    Raises:
        BlobSyncError: the last one.
    """
    stop = stopping if stopping is not None else threading.Event()
    until_s = time.monotonic() + policy.deadline.total_seconds()
    failures = wrong_bytes = 0
    while True:
        try:
            return call()
        except BlobSyncError as exc:
            failures += 1
            wrong_bytes += isinstance(exc, CorruptBlobError)
            wait_s = policy.wait_s(failures)
            if (
                not exc.retryable
                or wrong_bytes == WRONG_BYTES_TRIES
                or time.monotonic() + wait_s >= until_s
                or stop.is_set()
            ):
                raise
            _log.warning("store_call_retried", what=what, attempt=failures, error=str(exc))
            if stop.wait(wait_s):
                raise
