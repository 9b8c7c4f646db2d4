"""Bringing one release here while somebody waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from blobsync.errors import (
    BlobNotFoundError,
    BlobSyncError,
    CorruptBlobError,
    InvalidLayoutError,
    InvalidManifestError,
    InvalidPackError,
    ReleaseAbsentError,
    ReleaseCorruptError,
    StoreUnavailableError,
    SyncerClosedError,
)
from blobsync.local.store import LocalStore
from blobsync.release.manifest import ReleaseRef
from blobsync.release.objects import Fetchable
from blobsync.retry import RetryPolicy, call_retrying
from blobsync.sync.arrival import Arrival
from blobsync.sync.holds import Holds
from blobsync.sync.looker import Looked, Looker
from blobsync.sync.pool import DaemonPool
from blobsync.sync.transfers import Transfers

_WRONG_BYTES_TRIES = 2
"""Once may be the way here; and of a pack or blob, each try is two."""
_ELSEWHERE_S = 0.1
_FIRST = -1
"""Before all that is merely wanted."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class OnDemand:
    """What `ensure` needs.

    Attributes:
        local: Where to.
        looker: Finds out what is missing.
        transfers: Bring it.
        looks: Threads for looks and for making folders.
        holds: Protect it.
        retry: Between tries.
        stopping: Ends every wait.
    """

    local: LocalStore
    looker: Looker
    transfers: Transfers
    looks: DaemonPool
    holds: Holds
    retry: RetryPolicy
    stopping: threading.Event

    def ensure(self, ref: ReleaseRef, timeout: timedelta) -> Path:
        """See `blobsync.Syncer.ensure`."""
        until_s = time.monotonic() + timeout.total_seconds()
        policy = replace(self.retry, deadline=max(timeout, timedelta(milliseconds=1)))
        wrong_bytes: list[BlobSyncError] = []

        def attempt() -> Path:
            try:
                return self._attempt(ref, until_s)
            except BlobNotFoundError as exc:
                raise ReleaseAbsentError(f"{ref} is not in the object store: {exc}") from exc
            except InvalidManifestError as exc:
                raise ReleaseCorruptError(f"{ref} cannot be used: {exc}") from exc
            except (CorruptBlobError, InvalidLayoutError, InvalidPackError) as exc:
                wrong_bytes.append(exc)
                if len(wrong_bytes) < _WRONG_BYTES_TRIES and exc.retryable:
                    raise
                raise ReleaseCorruptError(f"{ref} is damaged in the object store: {exc}") from exc

        self.holds.pin(ref)
        try:
            return call_retrying(_telling_why(attempt), policy, what=f"ensure {ref}", stopping=self.stopping)
        except BaseException:
            self.holds.unpin(ref)
            raise

    def _attempt(self, ref: ReleaseRef, until_s: float) -> Path:
        found = self._on_thread(lambda: self.looker.look(ref), ref, until_s)
        if found.lacking:
            found = self._complete(ref, found, until_s)
        return self._on_thread(lambda: self.local.materialise(found.known.manifest), ref, until_s)

    def _complete(self, ref: ReleaseRef, found: Looked, until_s: float) -> Looked:
        try:
            self._bring(found.lacking.objects, ref, until_s)
        except (BlobNotFoundError, CorruptBlobError, InvalidPackError):
            # The layout may name other packs by now.
            known = found.known
            found = self._on_thread(lambda: self.looker.look(ref, known, fresh_layout=True), ref, until_s)
            self._bring(found.lacking.objects, ref, until_s)
        known = found.known
        found = self._on_thread(lambda: self.looker.look(ref, known), ref, until_s)
        if found.lacking:  # lost again, or other packs than the layout promised
            raise StoreUnavailableError(
                f"{ref} lacks {len(found.lacking.artifacts)} files here just after all was fetched; it is "
                f"tried again"
            )
        return found

    def _bring(self, items: tuple[Fetchable, ...], ref: ReleaseRef, until_s: float) -> None:
        """Fetch all. Of several errors the one that will not heal is raised: it decides."""
        errors: list[BlobSyncError] = []
        left = list(items)
        while left:
            calls = [(item, self.transfers.fetch(item, _FIRST)) for item in left]
            left = []
            for item, call in calls:
                try:
                    if self._result(call, ref, until_s) is Arrival.ELSEWHERE:
                        left.append(item)
                except BlobSyncError as exc:
                    errors.append(exc)
            if left:  # another process of this host receives it
                self._pause(ref, until_s)
        if errors:
            raise min(errors, key=lambda exc: exc.retryable)

    def _pause(self, ref: ReleaseRef, until_s: float) -> None:
        if time.monotonic() > until_s:
            raise _late(ref)
        if self.stopping.wait(_ELSEWHERE_S):
            raise SyncerClosedError("this syncer was closed while it worked; make a new one to go on")

    def _on_thread(self, call: Callable[[], Result], ref: ReleaseRef, until_s: float) -> Result:
        """A disk or a server may hang; whoever waits does not."""
        future = self.looks.submit(call, rank=(_FIRST, 0))
        try:
            return self._result(future, ref, until_s)
        finally:
            future.cancel()

    @staticmethod
    def _result(call: Future[Result], ref: ReleaseRef, until_s: float) -> Result:
        try:
            return call.result(max(0.0, until_s - time.monotonic()))
        except FutureTimeoutError as exc:
            raise _late(ref) from exc


def _telling_why(attempt: Callable[[], Result]) -> Callable[[], Result]:
    """Let an attempt that runs out of time tell the failure of the one before: a full disk, no server."""
    former: list[BlobSyncError] = []

    def tried() -> Result:
        try:
            return attempt()
        except _LateError as exc:
            if former:
                raise former[-1] from exc
            raise
        except BlobSyncError as exc:
            former.append(exc)
            raise

    return tried


class _LateError(StoreUnavailableError):
    """The time is over. Not itself a reason."""


def _late(ref: ReleaseRef) -> _LateError:
    return _LateError(
        f"{ref} was not complete here in time; it goes on arriving if it is wanted, so ask again"
    )
