"""Retries: bounded, with jitter, interruptible."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay, stop_when_event_set
from tenacity.nap import sleep_using_event

from blobsync.errors import (
    BlobSyncConfigError,
    BlobSyncError,
    CorruptBlobError,
    InvalidLayoutError,
    InvalidManifestError,
    InvalidPackError,
    PublishLapsedError,
)
from blobsync.log import LazyLog

_log = LazyLog(__name__)
Result = TypeVar("Result")

WRONG_BYTES_TRIES = 2
"""Number of reads with wrong bytes before a call fails. A retry repairs only damage in transit."""
WRONG_BYTES = (CorruptBlobError, InvalidLayoutError, InvalidManifestError, InvalidPackError)


@dataclass(frozen=True)
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


def read_again_if_wrong(read: Callable[[], Result]) -> Result:
    """Read, and if the bytes are wrong, read once more at once: see `WRONG_BYTES_TRIES`."""
    try:
        return read()
    except WRONG_BYTES:
        return read()


def call_retrying(
    call: Callable[[], Result], policy: RetryPolicy, *, what: str, stopping: threading.Event | None = None
) -> Result:
    """Call until success, an error that is not retryable, wrong bytes for the second time, or the deadline.

    `call` must be safe to repeat; `what` is for the log. Raises the last error of the call, at once when
    `stopping` is set; never an error of the retry library.
    """
    stop = stopping if stopping is not None else threading.Event()
    wrong_bytes = 0

    def may_heal(exc: BaseException) -> bool:
        nonlocal wrong_bytes
        wrong_bytes += isinstance(exc, CorruptBlobError)
        if isinstance(exc, PublishLapsedError):  # only a new publish has a new lease
            return False
        return isinstance(exc, BlobSyncError) and exc.retryable and wrong_bytes < WRONG_BYTES_TRIES

    def log(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning("store_call_retried", what=what, attempt=state.attempt_number, error=str(error))

    retrying = Retrying(
        retry=retry_if_exception(may_heal),
        wait=lambda state: policy.wait_s(state.attempt_number),
        stop=stop_before_delay(policy.deadline.total_seconds()) | stop_when_event_set(stop),
        sleep=sleep_using_event(stop),
        before_sleep=log,
        reraise=True,
    )
    return retrying(call)
