"""Hashes packs, large blobs and trees anew from the disk, slowly, over and over. Thread `blobsync-scrub`.

Disks forget, and people change files with their times set back. Each object of each kept release is verified
once in a round; the releases come in random order. Rounds begin at even intervals, as long as the store can
be read in that time at the allowed rate; else one follows the other. So a flipped byte counts as verified for
at most the interval or the time of a round, whichever is longer, plus the time of one round, unless rounds
break off. Manifests are verified too, but read through the
page cache: one that is damaged on the disk alone may be found late.
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
from functools import partial
from pathlib import Path
from typing import Any

from blobsync.errors import BlobMissingError, BlobSyncError, LocalStoreError, SyncerClosedError
from blobsync.local.releases import Release
from blobsync.local.store import LocalStore
from blobsync.log import Log
from blobsync.progress import Throttle
from blobsync.release.layout import StoredObject
from blobsync.release.manifest import ReleaseRef

_log = Log(__name__)

_ASK_AGAIN_S = 60.0
"""Whether the process whose turn it is has finished, or died."""


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """Of the rounds that this process makes; of several on one store, one does each.

    Attributes:
        is_running: A round is under way.
        done_releases: Releases that it, or else the last one, has been through.
        total_releases: Of how many.
        done_objects: Packs and large files verified in it.
        damaged_objects: Put away, since the start of the process.
        failed_objects: That the disk did not give, since the start of the process.
        finished_rounds: Since the start of the process.
        finished_at: End of the last of them, for people.
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
        self.progress = ScrubProgress()
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
        # Overdue, and not our turn: another process scrubs.
        due_s = self._turn.due_in_s()
        return due_s if due_s > 0 else min(self._interval_s, _ASK_AGAIN_S)

    def _round(self) -> None:
        began_s, before, seen = time.monotonic(), self.progress, set[str]()
        releases = self._local.releases()
        random.shuffle(releases)  # a restart begins the round anew: no release may always be among the last
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
        for verify in self._parts(ref, seen):
            try:
                verify()
            except LocalStoreError as exc:  # the disk did not say; the rest is verified all the same
                self._note(failed_objects=self.progress.failed_objects + 1)
                _log.warning("scrub_failed", release=str(ref), reason=str(exc))

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

    def _description(self, kept: Release) -> None:
        """The manifest, which a look does not read, and the tree that it describes."""
        try:
            manifest = kept.manifest
        except BlobMissingError:  # damaged, and put away just now
            self._tell_damaged(kept.ref.digest)
        else:
            self._local.scrub_tree(manifest, on_progress=self._on_progress)

    def _object(self, item: StoredObject) -> None:
        if not self._local.scrub_object(item, on_progress=self._on_progress):
            self._tell_damaged(item.name)

    def _tell_damaged(self, name: str) -> None:
        self._note(damaged_objects=self.progress.damaged_objects + 1)
        self._damaged(name)

    def _on_progress(self, size_bytes: int) -> None:
        self._throttle.take(size_bytes)


class ScrubTurn:
    """A file in the store that says when the last whole round began, locked while one is under way.

    A store without such a file is new: all in it was verified lately.

    Args:
        path: Of the file.
        interval_s: Between the beginnings of two rounds.
        now_s: Seconds of a clock that survives restarts. One that was set back costs an early round.
    """

    def __init__(self, path: Path, interval_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._path = path
        self._interval_s = interval_s
        self._now_s = now_s
        self._made_s = now_s()
        with contextlib.suppress(OSError), self._open(os.O_EXCL) as fd:
            self._note(fd, self._made_s)

    def due_in_s(self) -> float:
        """Seconds until the next round is due; not above 0: it is."""
        try:
            began_s = float(self._path.read_text())
        except (OSError, ValueError):  # it could not be written, or just is
            began_s = self._made_s
        since_s = self._now_s() - began_s
        return self._interval_s - since_s if since_s >= 0 else 0.0

    @contextmanager
    def taken(self) -> Iterator[bool]:
        """True if a round is due and no other process scrubs. The end of a whole round is noted.

        Raises:
            OSError: the file cannot be opened.
        """
        with self._open(0) as fd:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if self.due_in_s() > 0:  # another was faster
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
        with contextlib.suppress(OSError):  # a full disk: then the next process scrubs early
            os.pwrite(fd, f"{began_s:020.3f}".encode(), 0)
