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

    def want(self, refs: Iterable[ReleaseRef]) -> None:
        """Protect these releases, and those pinned; no others.

        Raises:
            LocalStoreError: the disk failed; what was protected before is.
        """
        with self._lock:
            wanted = frozenset(ref.digest for ref in refs)
            self._write(wanted, self._pinned)
            self._wanted = wanted

    def pin(self, ref: ReleaseRef) -> bool:
        """Protect a release until `unpin`, wanted or not. False: it was already.

        Raises:
            LocalStoreError: the disk failed; it is not pinned.
        """
        with self._lock:
            if ref in self._pinned:
                return False
            self._write(self._wanted, self._pinned | {ref})
            self._pinned.add(ref)
            return True

    def unpin(self, ref: ReleaseRef) -> None:
        """Take back `pin`.

        Raises:
            LocalStoreError: the disk failed; it is protected until the next change.
        """
        with self._lock:
            self._pinned.discard(ref)
            self._write(self._wanted, self._pinned)

    def _write(self, wanted: frozenset[str], pinned: set[ReleaseRef]) -> None:
        self._local.hold(wanted | {ref.digest for ref in pinned})
