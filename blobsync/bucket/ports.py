"""The object store as a port, and a wrapper that retries its calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol, TypeVar

from blobsync.errors import BlobSyncError, InvalidKeyError, StoppedError
from blobsync.names import key_fault
from blobsync.retry import RetryPolicy, call_retrying

Result = TypeVar("Result")

PIECE_BYTES = 1 << 20
"""Largest piece that `read` yields."""


OnProgress = Callable[[int], None]
"""Called with the number of bytes since the last call; may raise to stop the transfer."""


def ignore_progress(_size_bytes: int) -> None:
    """An `OnProgress` that does nothing."""


@dataclass(frozen=True)
class ObjectInfo:
    """One object of a listing.

    Attributes:
        modified: When it was last written, by the store's clock; aware, UTC. Compare it only with other
            times of the store: clocks differ.
    """

    key: str
    size_bytes: int
    modified: datetime


@dataclass(frozen=True)
class UnfinishedUpload:
    """An upload in parts that was not completed. Its parts take room until it is abandoned.

    Attributes:
        key: Key of the object.
        upload_id: Id of the upload at the store.
        age: Since it was begun, by the store's clock.
    """

    key: str
    upload_id: str
    age: timedelta


class ObjectStore(Protocol):
    """Objects under keys. Thread-safe. Every call has a time limit.

    Every method may raise `BucketUnavailableError` (worth a retry), `BucketAccessDeniedError`,
    `BucketMissingError`, `BucketRefusedError` and `InvalidKeyError` (see `blobsync.names.key_fault`). Nothing
    here depends on conditional writes, metadata, tags or checksums of the store: servers differ too much.
    A store does not verify what it reads; the caller knows the digest and does.
    """

    def check(self) -> None:
        """Check that the store answers and lets this caller in. Makes one small request, changes nothing."""

    def close(self) -> None:
        """Close the connections, after the last call. Safe to repeat."""

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        """Stream an object, or a range of it, in pieces of at most `PIECE_BYTES`.

        The request is made when the first piece is asked for. A range is cut where the object ends; one that
        begins there or beyond, or has no bytes, is empty.

        Args:
            key: Key of the object.
            start: The first byte.
            size_bytes: Number of bytes; None: to the end.

        Raises:
            BlobNotFoundError: there is no such object.
            BucketUnavailableError: also if the answer breaks off, or is for another range.
        """

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, on_progress: OnProgress) -> None:
        """Write a range of an object into an open file, at the same offset. The caller makes it durable.

        The file's position is neither used nor moved, so that several threads may fill one file.

        Args:
            key: Key of the object.
            fd: A regular file, open for writing, not for appending.
            start: The first byte, in the object and in the file.
            size_bytes: Number of bytes; above 0.
            on_progress: Called with the size of each piece, of at most `PIECE_BYTES`, after it was written.
                While nothing is received, it is called with 0, about once a second. Its exceptions pass
                through.

        Raises:
            BlobNotFoundError: there is no such object.
            BucketUnavailableError: also if the object ends before. The bytes before that may be in the file.
            LocalStoreError: the file cannot be written.
        """

    def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
        """Create or replace an object. Readers see all of it or nothing.

        A large one may be sent in parts. If that breaks off, or `on_progress` raises, the parts stay as an
        unfinished upload. The next `write` of the same bytes to this key continues it, `abandon_uploads`
        removes it.

        Args:
            key: Key of the object.
            data: The bytes, or a file, which must not change meanwhile.
            on_progress: Called with the size of each piece that the store has, one thread at a time. Its
                exceptions pass through.

        Raises:
            LocalStoreError: the file cannot be read, or changed meanwhile.
        """

    def size(self, key: str) -> int | None:
        """Size in bytes; None: there is no such object."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects whose keys begin with `prefix`, in byte order of their keys, each key once.

        Also objects of other programs, under keys that `read` and `delete` refuse: see `valid_objects`.

        Args:
            prefix: May be empty or end anywhere.
            start_after: Only keys after this one.
        """

    def delete(self, key: str) -> None:
        """Remove an object. Safe to repeat: a missing one is no error."""

    def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
        """Remove objects, many with each request. Missing ones are no error. Safe to repeat.

        An invalid key is refused before anything is removed. After another error, some may be removed.

        Args:
            keys: Keys of the objects.
            before_each: Called before each request; there may be one for each object. Its exceptions pass
                through, and nothing more is removed.
        """

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Uploads that run or broke off, of keys that begin with `prefix`. In no order."""

    def abandon_uploads(self, prefix: str, older_than: timedelta) -> int:
        """Remove unfinished uploads that were begun that long ago. Returns how many.

        An upload that still runs then fails, so `older_than` must be longer than any upload takes.
        """


class PatientStore:
    """An object store whose calls are retried and can be stopped. Thread-safe, as the store is.

    Publishes and collections extend it.
    """

    def __init__(self, store: ObjectStore, retry: RetryPolicy, stopping: threading.Event) -> None:
        self.store, self.retry, self.stopping = store, retry, stopping

    def raise_if_stopped(self) -> None:
        """Raise `StoppedError` once `stopping` is set."""
        if self.stopping.is_set():
            raise StoppedError("told to stop")

    def call(self, call: Callable[[ObjectStore], Result], what: str) -> Result:
        """Call the store until the call succeeds, fails for good, or the retry policy's deadline passes.

        `call` must be safe to repeat; `what` is for the log. StoppedError once `stopping` is set.
        """
        self.raise_if_stopped()
        try:
            return call_retrying(lambda: call(self.store), self.retry, what=what, stopping=self.stopping)
        except BlobSyncError:
            self.raise_if_stopped()  # the error may be that of a call that was cut short
            raise


def valid_objects(store: ObjectStore, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
    """List the objects that can be read and deleted. For the arguments see `ObjectStore.list`.

    Other programs make objects under keys that this library refuses: consoles make an empty object `name/`
    for a folder. One of them must not end the work on all others.
    """
    return (info for info in store.list(prefix, start_after) if key_fault(info.key) is None)


def checked_key(key: str) -> str:
    """Return `key` if every store accepts it. Else InvalidKeyError."""
    fault = key_fault(key)
    if fault is not None:
        raise InvalidKeyError(
            f"object key {key[:200]!r} {fault}; use short relative keys, as made by blobsync.bucket.keys"
        )
    return key


def checked_range(start: int, size_bytes: int | None) -> None:
    """Refuse a negative range. ValueError, since it is a defect of the caller."""
    if start < 0 or (size_bytes is not None and size_bytes < 0):
        raise ValueError(f"a range of {size_bytes} bytes from {start} on: neither may be negative")
