"""Hashes everything anew from the disk, slowly, over and over. Thread `blobsync-scrub`.

Disks forget, and people change files with their times set back. Each object of each kept release is verified
once in a round, and rounds begin at even intervals, so a flipped byte counts as verified for one interval at
most, as long as the store can be read in that time at the allowed rate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial

from blobsync.errors import BlobMissingError, BlobSyncError, LocalStoreError, SyncerClosedError
from blobsync.local.releases import KeptRelease
from blobsync.local.store import LocalStore
from blobsync.log import Log
from blobsync.release.manifest import ReleaseRef
from blobsync.release.objects import StoredObject
from blobsync.sync.scrub_progress import ScrubTally
from blobsync.sync.scrub_turn import ScrubTurn
from blobsync.sync.throttle import Throttle

_log = Log(__name__)

_ASK_AGAIN_S = 60.0
"""Whether the process whose turn it is has finished, or died."""


class Scrubber:
    """One thread.

    Args:
        local: What is scrubbed.
        interval: Between the beginnings of two rounds, over all processes that share the store.
        bytes_per_s: How fast the disk may be read; None: as fast as it can.
        stopping: Ends it.
        damaged: Called with the name of each object that was put away, or the digest of a release whose
            manifest was, on this thread.
    """

    def __init__(
        self,
        local: LocalStore,
        *,
        interval: timedelta,
        bytes_per_s: float | None,
        stopping: threading.Event,
        damaged: Callable[[str], None],
    ) -> None:
        self._local = local
        self._interval_s = interval.total_seconds()
        self._stopping = stopping
        self._damaged = damaged
        self._throttle = Throttle(bytes_per_s, stopping)
        self._found = 0
        self.tally = ScrubTally()
        self._turn = ScrubTurn(local.root / "scrub", self._interval_s)
        self._thread = threading.Thread(target=self._run, name="blobsync-scrub", daemon=True)

    def start(self) -> None:
        """Start the thread. Once."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for its end, after `stopping` was set. False: it goes on beyond the timeout."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.wait(self._wait_s()):
            try:
                with self._turn.taken() as ours:
                    if ours:
                        self._round()
            except SyncerClosedError:
                return
            except (BlobSyncError, OSError) as exc:
                _log.warning("scrub_failed", reason=str(exc))
                self._stopping.wait(min(self._interval_s, _ASK_AGAIN_S))
            except Exception:  # noqa: BLE001 - the top of the thread; only a defect of ours comes here
                _log.exception("scrub_failed")
                self._stopping.wait(self._interval_s)

    def _wait_s(self) -> float:
        # Overdue, and not ours: somebody else is at it.
        due_s = self._turn.due_in_s()
        return due_s if due_s > 0 else min(self._interval_s, _ASK_AGAIN_S)

    def _round(self) -> None:
        began_s, seen, failed = time.monotonic(), set[str](), 0
        self._found = 0
        releases = self._local.releases()
        with self.tally.round(len(releases)):
            for done, ref in enumerate(releases, 1):
                for verify in self._parts(ref, seen):
                    try:
                        verify()
                    except LocalStoreError as exc:  # the disk did not say; the rest is verified all the same
                        failed += 1
                        self.tally.failed()
                        _log.warning("scrub_failed", release=str(ref), reason=str(exc))
                self.tally.been_through(done, len(seen))
        took_s = time.monotonic() - began_s
        log = _log.warning if took_s > self._interval_s or self._found or failed else _log.info
        log("scrub_finished", objects=len(seen), damaged=self._found, failed=failed, took_s=round(took_s, 1))

    def _parts(self, ref: ReleaseRef, seen: set[str]) -> Iterator[Callable[[], None]]:
        """What to verify of a release that was not verified in this round."""
        kept = self._local.kept(ref)
        if kept is None:
            return
        for item in kept.objects:
            if item.name not in seen:
                seen.add(item.name)
                yield partial(self._object, item)
        yield partial(self._description, kept)

    def _description(self, kept: KeptRelease) -> None:
        """The manifest, which a look does not read, and the tree that it describes."""
        try:
            manifest = kept.manifest
        except BlobMissingError:  # damaged, and put away just now
            self._found += 1
            self.tally.damaged()
            self._damaged(kept.ref.digest)
        else:
            self._local.scrub_tree(manifest, going_on=self._going_on)

    def _object(self, item: StoredObject) -> None:
        if not self._local.scrub_object(item, going_on=self._going_on):
            self._found += 1
            self.tally.damaged()
            self._damaged(item.name)

    def _going_on(self, size_bytes: int) -> None:
        self._throttle.take(size_bytes)
