"""Hashes packs, large blobs and trees again from the disk, slowly and repeatedly. Thread `blobsync-scrub`.

Bytes flip on disks, and people change files and set their times back. Each object of each kept release is
verified once in a round; the releases are in random order. Rounds begin at even intervals; if the store
cannot be read in that time at the allowed rate, each round follows the last one. So a flipped byte counts as
verified for at most the longer of interval and duration of a round, plus the duration of one round, unless
rounds are interrupted. Manifests are verified, too, but read through the page cache: if one is damaged only
on the disk, that may be found late. If a layout is damaged, the packs of its release are not known, so they
are verified in the next round after the layout was written again.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from blobsync.errors import BlobMissingError, BlobSyncError, LocalStoreError, SyncerClosedError
from blobsync.local.releases import Release
from blobsync.local.store import LocalStore
from blobsync.log import LazyLog
from blobsync.progress import Throttle
from blobsync.release.manifest import ReleaseRef

_log = LazyLog(__name__)

_ASK_AGAIN_S = 60.0
"""Interval to check whether the process that scrubs has finished or died."""


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """Progress of the rounds of this process. If several processes share a store, one makes each round.

    Attributes:
        is_running: True while a round runs.
        done_releases: Releases that the current or else the last round has finished.
        total_releases: Number of releases of that round.
        done_objects: Packs and large files verified in that round.
        damaged_objects: Objects, manifests and layouts that did not pass since the start of the process. The
            damaged ones went to quarantine; some may have been removed or changed while they were hashed.
        failed_objects: Objects, manifests and layouts whose check failed because of the disk, since the
            start of the process.
        finished_rounds: Number of completed rounds since the start of the process.
        finished_at: End of the last completed round, for people.
    """

    is_running: bool = False
    done_releases: int = 0
    total_releases: int = 0
    done_objects: int = 0
    damaged_objects: int = 0
    failed_objects: int = 0
    finished_rounds: int = 0
    finished_at: datetime | None = None


class Scrubber:
    """The thread. `progress` may be read on any thread.

    Args:
        interval: Time between the starts of two rounds, for all processes that share the store.
        damaged: Called on this thread with the name of each object that did not pass, or with the digest of a
            release whose manifest or layout did not; see `ScrubProgress.damaged_objects`.
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
        self.progress = ScrubProgress()
        self._turn = ScrubTurn(local.root / "scrub", self._interval_s)
        self._thread = threading.Thread(target=self._run, name="blobsync-scrub", daemon=True)

    def start(self) -> None:
        """Start the thread. Call it once."""
        self._thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait for the end of the thread, after `stopping` was set. False: the timeout has passed."""
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
            except Exception:  # noqa: BLE001 - the top of the thread; only a defect of this package comes here
                _log.exception("scrub_failed")
                self._stopping.wait(self._interval_s)

    def _wait_s(self) -> float:
        # A round is due, but another process makes it.
        due_s = self._turn.due_in_s()
        return due_s if due_s > 0 else min(self._interval_s, _ASK_AGAIN_S)

    def _round(self) -> None:
        began_s, before, seen = time.monotonic(), self.progress, set[str]()
        releases = self._local.releases()
        random.shuffle(releases)  # a restart begins a new round: no release may always be among the last
        self._note(is_running=True, done_releases=0, total_releases=len(releases), done_objects=0)
        try:
            for done, ref in enumerate(releases, 1):
                self._scrub(ref, seen)
                self._note(done_releases=done, done_objects=len(seen))
            self._note(finished_rounds=before.finished_rounds + 1, finished_at=datetime.now(UTC))
        finally:
            self._note(is_running=False)
        took_s = time.monotonic() - began_s
        damaged = self.progress.damaged_objects - before.damaged_objects
        failed = self.progress.failed_objects - before.failed_objects
        log = _log.warning if took_s > self._interval_s or damaged or failed else _log.info
        log("scrub_finished", objects=len(seen), damaged=damaged, failed=failed, took_s=round(took_s, 1))

    def _note(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)

    def _scrub(self, ref: ReleaseRef, seen: set[str]) -> None:
        """Verify the parts of a release that were not verified in this round."""
        with self._failure_counted(ref):
            if not self._local.is_listed(ref):  # it was collected during this round
                return
            kept = self._local.kept(ref)
            if kept is None:  # its manifest or layout is damaged, and has just been moved to quarantine
                self._tell_damaged(ref.digest)
                return
            for item in kept.objects:
                if item.name not in seen:
                    seen.add(item.name)
                    with self._failure_counted(ref):
                        if not self._local.scrub_object(item, on_progress=self._on_progress):
                            self._tell_damaged(item.name)
            self._manifest_and_tree(kept)

    @contextmanager
    def _failure_counted(self, ref: ReleaseRef) -> Iterator[None]:
        """Count and log a failure of the disk. Everything else is verified nevertheless."""
        try:
            yield
        except LocalStoreError as exc:
            self._note(failed_objects=self.progress.failed_objects + 1)
            _log.warning("scrub_failed", release=str(ref), reason=str(exc))

    def _manifest_and_tree(self, kept: Release) -> None:
        """Verify the manifest, which a look does not read, and the tree of the release."""
        try:
            manifest = kept.manifest
        except BlobMissingError:  # it is damaged, and has just been moved to quarantine
            self._tell_damaged(kept.ref.digest)
        else:
            self._local.scrub_tree(manifest, on_progress=self._on_progress)

    def _tell_damaged(self, name: str) -> None:
        self._note(damaged_objects=self.progress.damaged_objects + 1)
        self._damaged(name)

    def _on_progress(self, size_bytes: int) -> None:
        self._throttle.take(size_bytes)


class ScrubTurn:
    """A file in the store that contains when the last whole round began, locked while a round runs.

    A store without such a file is new: all its objects were verified recently.
    """

    def __init__(self, path: Path, interval_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._path = path
        self._interval_s = interval_s
        self._now_s = now_s
        self._made_s = now_s()
        with contextlib.suppress(OSError), self._open(os.O_EXCL) as fd:
            self._note(fd, self._made_s)

    def due_in_s(self) -> float:
        """Seconds until the next round is due; 0 or below: it is due."""
        try:
            began_s = float(self._path.read_text())
        except (OSError, ValueError):  # it could not be written, or is being written
            began_s = self._made_s
        since_s = self._now_s() - began_s
        return self._interval_s - since_s if since_s >= 0 else 0.0

    @contextmanager
    def taken(self) -> Iterator[bool]:
        """Yield True if a round is due and no other process scrubs. Then note that it was completed."""
        with self._open(0) as fd:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if self.due_in_s() > 0:  # another process was faster
                yield False
                return
            began_s = self._now_s()
            yield True
            self._made_s = began_s
            self._note(fd, began_s)

    @contextmanager
    def _open(self, more: int) -> Iterator[int]:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | more, 0o644)
        try:
            yield fd
        finally:
            os.close(fd)

    @staticmethod
    def _note(fd: int, began_s: float) -> None:
        with contextlib.suppress(OSError):  # a full disk: then the next round begins early
            os.pwrite(fd, f"{began_s:020.3f}".encode(), 0)
