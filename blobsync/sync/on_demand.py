"""Bringing one release here while somebody waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    CorruptBlobError,
    InvalidManifestError,
    ReleaseAbsentError,
    ReleaseCorruptError,
    StoreUnavailableError,
)
from blobsync.local.store import LocalStore
from blobsync.release.manifest import ReleaseRef
from blobsync.retry import RetryPolicy, call_retrying
from blobsync.sync.fetcher import Fetcher
from blobsync.sync.pool import DaemonPool

_WRONG_BYTES_TRIES = 3
"""Once or twice may be the way here; three times is the source."""

Result = TypeVar("Result")


def ensure(
    fetcher: Fetcher,
    local: LocalStore,
    pool: DaemonPool,
    retry: RetryPolicy,
    ref: ReleaseRef,
    timeout: timedelta,
) -> Path:
    """See `blobsync.Syncer.ensure`."""
    until = time.monotonic() + timeout.total_seconds()
    wrong_bytes: list[CorruptBlobError] = []

    def attempt() -> Path:
        try:
            found = _result(pool.submit(lambda: fetcher.look(ref, None)), until, ref)
            if found.missing:
                sizes = found.manifest.blobs
                calls = [
                    pool.submit(_fetching(fetcher, sha256, sizes[sha256].size_bytes))
                    for sha256 in sorted(found.missing)
                ]
                _all(calls, until, ref)
                _result(pool.submit(lambda: fetcher.look(ref, found.manifest)), until, ref)
            return _result(pool.submit(lambda: local.materialise(found.manifest)), until, ref)
        except BlobNotFoundError as exc:
            raise ReleaseAbsentError(f"{ref} is not in the object store: {exc}") from exc
        except InvalidManifestError as exc:
            raise ReleaseCorruptError(f"{ref} cannot be used: {exc}") from exc
        except CorruptBlobError as exc:
            wrong_bytes.append(exc)
            if len(wrong_bytes) < _WRONG_BYTES_TRIES:
                raise
            raise ReleaseCorruptError(f"{ref} is damaged in the object store: {exc}") from exc

    policy = replace(retry, deadline=max(timeout, timedelta(milliseconds=1)))
    newly_pinned = fetcher.pin(ref)
    try:
        return call_retrying(attempt, policy, what=f"ensure {ref}", stopping=fetcher.stopping)
    except BaseException:
        if newly_pinned:  # else somebody uses what an earlier call gave
            fetcher.unpin(ref)
        raise


def _fetching(fetcher: Fetcher, sha256: str, size_bytes: int) -> Callable[[], bool]:
    return lambda: fetcher.fetch(sha256, size_bytes)


def _all(calls: list[Future[bool]], until: float, ref: ReleaseRef) -> None:
    """Wait for all. Of several errors the one that will not heal is raised: it decides."""
    errors: list[BlobSyncError] = []
    try:
        for call in calls:
            try:
                _result(call, until, ref)
            except BlobSyncError as exc:
                errors.append(exc)
    finally:
        for call in calls:
            call.cancel()
    if errors:
        raise min(errors, key=lambda exc: exc.retryable)


def _result(call: Future[Result], until: float, ref: ReleaseRef) -> Result:
    try:
        return call.result(max(0.0, until - time.monotonic()))
    except FutureTimeoutError as exc:
        raise StoreUnavailableError(
            f"{ref} was not complete here in time; it goes on arriving if it is wanted, so ask again"
        ) from exc
