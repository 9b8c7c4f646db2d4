"""Reading many small objects whole. A store that can ask for several at a time does; others one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from blobsync.errors import BlobSyncError, CorruptBlobError
from blobsync.storage.ports import GoingOn, ObjectStore


class Whole(NamedTuple):
    """An object to read, and how long it should be. At most a few MiB: it is held in memory."""

    key: str
    size_bytes: int


@runtime_checkable
class ReadsMany(Protocol):
    """An object store that can do this faster than by `ObjectStore.read`."""

    def read_many(self, wanted: Sequence[Whole], going_on: GoingOn) -> Iterator[bytes | BlobSyncError]:
        """See `read_many` of this module."""
        ...


def read_many(
    store: ObjectStore, wanted: Sequence[Whole], going_on: GoingOn
) -> Iterator[bytes | BlobSyncError]:
    """The bytes of objects, in the order in which they are wanted; or why one cannot be had.

    Args:
        store: Where from.
        wanted: What.
        going_on: See `GoingOn`. A BlobSyncError that it raises is given in place of the bytes: ask for no
            more then.

    Yields:
        The bytes, of the size that was named; BlobNotFoundError; CorruptBlobError for another size;
        any other error as of `ObjectStore.read`.
    """
    if isinstance(store, ReadsMany):
        yield from store.read_many(wanted, going_on)
        return
    yield from one_by_one(store.read, wanted, going_on)


def one_by_one(
    read: Callable[[str], Iterable[bytes]], wanted: Iterable[Whole], going_on: GoingOn
) -> Iterator[bytes | BlobSyncError]:
    """As `read_many`, by a function that reads one object."""
    for item in wanted:
        try:
            found: bytes | BlobSyncError = read_whole(read(item.key), item, going_on)
        except BlobSyncError as exc:
            found = exc
        yield found


def read_whole(pieces: Iterable[bytes], wanted: Whole, going_on: GoingOn) -> bytes:
    """Put together what a read gives, unless that is more than was named.

    Raises:
        CorruptBlobError: the object has another size.
        BlobSyncError: as `pieces` raise it.
    """
    found: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        size_bytes += len(piece)
        if size_bytes > wanted.size_bytes:
            raise other_size(wanted, f"more than {wanted.size_bytes}")
        found.append(piece)
        going_on(len(piece))
    if size_bytes != wanted.size_bytes:
        raise other_size(wanted, str(size_bytes))
    return found[0] if len(found) == 1 else b"".join(found)


def other_size(wanted: Whole, found: str) -> CorruptBlobError:
    """An object is not what it was."""
    return CorruptBlobError(
        f"{wanted.key} has {found} bytes, not {wanted.size_bytes}; nothing of it was used"
    )
