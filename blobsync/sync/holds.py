"""What this syncer protects from collection: what is wanted, and what somebody uses. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from blobsync.local.store import LocalStore
from blobsync.release.manifest import ReleaseRef


class Holds:
    """Keeps the list in the local store up to date.

    Args:
        local: The store.
    """

    def __init__(self, local: LocalStore) -> None:
        self._local = local
        self._lock = threading.Lock()
        self._wanted: frozenset[str] = frozenset()
        self._pinned: set[ReleaseRef] = set()
        self._written: frozenset[str] = frozenset()
        self._unsettled = False

    def want(self, refs: Iterable[ReleaseRef]) -> None:
        """Protect these releases, and those pinned; no others.

        Raises:
            LocalStoreError: the disk failed; what was protected before is, and `settle` tries again.
        """
        with self._lock:
            self._wanted = frozenset(ref.digest for ref in refs)
            self._write()

    def settle(self) -> None:
        """Write what could not be written. Costs nothing when there is nothing.

        Raises:
            LocalStoreError: the disk still fails.
        """
        if self._unsettled:
            with self._lock:
                self._write()

    def pin(self, ref: ReleaseRef) -> bool:
        """Protect a release until `unpin`, wanted or not. False: it was already.

        Raises:
            LocalStoreError: the disk failed; it is not pinned.
        """
        with self._lock:
            if ref in self._pinned:
                return False
            self._pinned.add(ref)
            try:
                self._write()
            except BaseException:
                if ref.digest not in self._written:
                    self._pinned.discard(ref)
                    raise
            return True

    def unpin(self, ref: ReleaseRef) -> None:
        """Take back `pin`.

        Raises:
            LocalStoreError: the disk failed; it is protected until `settle`.
        """
        with self._lock:
            self._pinned.discard(ref)
            self._write()

    def _write(self) -> None:
        """Nothing is written when nothing changes: on a full disk, what is protected can be used."""
        needed = self._wanted | {ref.digest for ref in self._pinned}
        self._unsettled = needed != self._written
        if self._unsettled:
            self._local.hold(needed)
            self._written, self._unsettled = needed, False
