"""Where objects are copied from: peers that were told of, in order, and then the object store.

A peer is asked as a favour. Whatever it cannot give comes from the next, and at last from the object store,
whose word alone counts: only it can say that an object does not exist. What any of them gives is verified
like anything else; after wrong bytes, the object store is asked at once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from blobsync.errors import BlobNotFoundError, BlobSyncError, LocalStoreError, SyncerClosedError
from blobsync.log import Log
from blobsync.storage.ports import GoingOn, ObjectStore

_log = Log(__name__)

_REST_S = 30.0
"""A source that failed is not asked again for so long."""


class ObjectSource(Protocol):
    """A place that may have objects, such as another host of the same cluster. Thread-safe."""

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, going_on: GoingOn) -> None:
        """Write a range of an object into an open file, at the same offset.

        Args:
            key: As of `blobsync.storage.keys`.
            fd: Open for writing.
            start: First byte.
            size_bytes: How many.
            going_on: See `GoingOn`; call it at least once a second. What it raises passes through.

        Raises:
            BlobNotFoundError: it does not have that.
            LocalStoreError: the file cannot be written.
            BlobSyncError: anything else; it is left alone for a while.
        """
        ...


class Sources:
    """Asks one after the other. Thread-safe.

    Args:
        store: The object store, asked last.
        peers: Asked before, in this order.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        store: ObjectStore,
        peers: Sequence[ObjectSource] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._peers = tuple(peers)
        self._clock = clock
        self._lock = threading.Lock()
        self._resting_until_s = [float("-inf")] * len(self._peers)

    @property
    def store(self) -> ObjectStore:
        """The object store."""
        return self._store

    @property
    def has_peers(self) -> bool:
        """Whether there is anybody but the object store."""
        return bool(self._peers)

    def copy(
        self, key: str, fd: int, *, start: int, size_bytes: int, going_on: GoingOn, store_only: bool = False
    ) -> None:
        """Write a range of an object into an open file. As of `ObjectStore.copy`.

        Args:
            key: What.
            fd: Where to.
            start: First byte.
            size_bytes: How many.
            going_on: See `GoingOn`. Bytes that a peer gave before it failed are taken back from it, as a
                negative number.
            store_only: Peers are left out: one of them gave wrong bytes.
        """
        for number, peer in enumerate(() if store_only else self._peers):
            if self._may_ask(number) and _copied(
                peer, key, fd, start, size_bytes, going_on, self._rest, number
            ):
                return
        self._store.copy(key, fd, start=start, size_bytes=size_bytes, going_on=going_on)

    def _may_ask(self, number: int) -> bool:
        with self._lock:
            return self._clock() >= self._resting_until_s[number]

    def _rest(self, number: int) -> None:
        with self._lock:
            self._resting_until_s[number] = self._clock() + _REST_S


def _copied(
    peer: ObjectSource,
    key: str,
    fd: int,
    start: int,
    size_bytes: int,
    going_on: GoingOn,
    rest: Callable[[int], None],
    number: int,
) -> bool:
    got = 0

    def count(more: int) -> None:
        nonlocal got
        got += more
        going_on(more)

    try:
        peer.copy(key, fd, start=start, size_bytes=size_bytes, going_on=count)
    except BlobNotFoundError:
        pass
    except (LocalStoreError, SyncerClosedError):
        raise
    except BlobSyncError as exc:
        rest(number)
        _log.warning("peer_failed", peer=number, key=key, error=str(exc))
    else:
        return True
    going_on(-got)
    return False
