"""The releases that this syncer protects from collection: the wanted ones, and those in use. Thread-safe."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable

from blobsync.errors import LocalStoreError
from blobsync.local.store import LocalStore
from blobsync.log import Log
from blobsync.release.manifest import ReleaseRef

_log = Log(__name__)


class Holds:
    """Keeps the list of this session in the local store up to date.

    Args:
        local: The store.
    """

    def __init__(self, local: LocalStore) -> None:
        self._local = local
        self._lock = threading.Lock()
        self._wanted: frozenset[str] = frozenset()
        self._pins: Counter[str] = Counter()
        self._written: frozenset[str] = frozenset()
        self._unsettled = False

    def want(self, refs: Iterable[ReleaseRef]) -> None:
        """Protect these releases, and those pinned; no others. If the disk fails: see `settle`."""
        with self._lock:
            self._wanted = frozenset(ref.digest for ref in refs)
            self._try_to_write()

    def settle(self) -> None:
        """Write what a disk that failed did not take. What was protected before is until then."""
        if self._unsettled:
            with self._lock:
                self._try_to_write()

    def pin(self, ref: ReleaseRef) -> None:
        """Protect a release, wanted or not, until `unpin` was called as often.

        Raises:
            LocalStoreError: the disk failed; it is not pinned.
        """
        with self._lock:
            self._pins[ref.digest] += 1
            try:
                self._write()
            except BaseException:
                if ref.digest not in self._written:
                    self._pins[ref.digest] -= 1
                    raise

    def unpin(self, ref: ReleaseRef) -> None:
        """Take back one `pin`. If the disk fails, the release stays protected until `settle`."""
        with self._lock:
            self._pins[ref.digest] -= 1
            self._try_to_write()

    def _try_to_write(self) -> None:
        try:
            self._write()
        except LocalStoreError as exc:  # the looks meet the same disk, and readiness tells of it
            _log.warning("holds_not_written", error=str(exc))

    def _write(self) -> None:
        """Nothing is written when nothing changes: on a full disk, what is protected can be used."""
        self._pins = +self._pins  # without those at 0
        needed = self._wanted | self._pins.keys()
        self._unsettled = needed != self._written
        if self._unsettled:
            self._local.hold(needed)
            self._written, self._unsettled = needed, False
