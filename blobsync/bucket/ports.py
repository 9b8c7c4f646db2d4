"""What this package needs of the world: somewhere to keep objects; and a patient way to call it."""

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

CHUNK_BYTES = 1 << 20
"""How much `read` gives at a time, at most."""


OnProgress = Callable[[int], None]
"""Told how many bytes came since it was last called; it raises to stop a transfer."""


def ignore_progress(_size_bytes: int) -> None:
    """A transfer that nobody watches."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One object of a listing.

    Attributes:
        key: Its name.
        size_bytes: How long it is.
        modified: When it was last written, by the store's clock; aware, UTC. Compare it with other times of
            the store alone: clocks differ.
    """

    key: str
    size_bytes: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """A large object that was begun and never became visible. Its parts take room until it is abandoned.

    Attributes:
        key: Of the object it would have become.
        upload_id: Names it at the store.
        age: Since when, by the store's clock.
    """

    key: str
    upload_id: str
    age: timedelta


class ObjectStore(Protocol):
    """Immutable-by-habit objects under keys. Thread-safe. Every call has a time limit.

    Every method may raise `StoreUnavailableError` (worth a retry), `StoreAccessDeniedError`,
    `BucketMissingError`, `StoreRefusedError` and `InvalidKeyError` (see `blobsync.names.key_fault`). Nothing
    here depends on conditional writes, metadata, tags or checksums of the store: servers differ too much in
    them. Nor is what a store gives verified here: who reads knows the digest.
    """

    def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        """Stream an object, or a range of it, in chunks of at most `CHUNK_BYTES`.

        The request is made when the first chunk is asked for. A range is cut where the object ends; one that
        begins there or beyond, or has no bytes, is empty.

        Args:
            key: What to read.
            start: The first byte to give.
            size_bytes: How many bytes to give; None: to the end.

        Raises:
            BlobNotFoundError: there is no such object.
            StoreUnavailableError: also when it ends before its announced length, or the store gave another
                range than it was asked for.
        """
        ...

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, on_progress: OnProgress) -> None:
        """Write a range of an object into an open file, at the same offset. The caller makes it durable.

        The file's position is neither used nor moved, so that several threads may fill one file.

        Args:
            key: What to read.
            fd: A regular file, open for writing, not for appending.
            start: The first byte, in the object and in the file.
            size_bytes: How many; above 0.
            on_progress: Called after each piece, of at most `CHUNK_BYTES`, is in the file, with its size.
                While nothing comes, it is called with 0, about once a second. What it raises passes through.

        Raises:
            BlobNotFoundError: there is no such object.
            StoreUnavailableError: also when fewer bytes came. Those that did may be in the file.
            LocalStoreError: the file cannot be written.
        """
        ...

    def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
        """Create or replace an object; seen whole or not at all.

        A large one may be sent in parts. When that breaks off, or `on_progress` raises, the parts may stay as
        an unfinished upload, which the next `write` of the same bytes to this key takes up, and
        `abandon_uploads` removes.

        Args:
            key: Where to.
            data: The bytes, or a file that does not change meanwhile.
            on_progress: Called, one thread at a time, with the size of each piece that the store has. What it
                raises passes through.

        Raises:
            LocalStoreError: the file cannot be read, or changed meanwhile.
        """
        ...

    def size(self, key: str) -> int | None:
        """Size in bytes; None: the store answered that there is no such object."""
        ...

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects whose keys begin with `prefix`, in byte order of their keys.

        Args:
            prefix: May be empty or end anywhere.
            start_after: Give only keys after this one.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object. Safe to repeat: a missing one is no error."""
        ...

    def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
        """Remove objects, many with each request. Missing ones are no error. Safe to repeat.

        An invalid key is refused before anything is removed. After another error, some are gone.

        Args:
            keys: Of the objects.
            before_each: Called before each request, of which there may be one for each object. What it
                raises passes through: the caller may not delete any more.
        """
        ...

    def unfinished_uploads(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Uploads under way or broken off, of keys that begin with `prefix`. In no order."""
        ...

    def abandon_uploads(self, prefix: str, older_than: timedelta) -> int:
        """Remove uploads that were begun that long ago, finished or not by whoever began them; say how many.

        One that somebody still works on then fails for them, so let `older_than` be longer than any upload.
        """
        ...


class PatientStore:
    """An object store whose calls are tried again and can be stopped. Thread-safe, as the store is.

    Publishes and collections extend it.

    Args:
        store: The object store.
        retry: For each call.
        stopping: When set, every call ends soon.
    """

    def __init__(self, store: ObjectStore, retry: RetryPolicy, stopping: threading.Event) -> None:
        self.store, self.retry, self.stopping = store, retry, stopping

    def raise_if_stopped(self) -> None:
        """Raise `StoppedError` once `stopping` is set."""
        if self.stopping.is_set():
            raise StoppedError("told to stop")

    def call(self, call: Callable[[ObjectStore], Result], what: str) -> Result:
        """Call the store until the call succeeds, fails for good, or the retry policy's deadline passes.

        Args:
            call: Safe to repeat.
            what: For the log.

        Raises:
            StoppedError: told to stop.
            BlobSyncError: the last error of the call.
        """
        self.raise_if_stopped()
        try:
            return call_retrying(lambda: call(self.store), self.retry, what=what, stopping=self.stopping)
        except BlobSyncError:
            self.raise_if_stopped()  # then the error is that of a call that was cut short
            raise


def checked_key(key: str) -> str:
    """Give `key` back, if every store takes it.

    Raises:
        InvalidKeyError: it does not.
    """
    fault = key_fault(key)
    if fault is not None:
        raise InvalidKeyError(
            f"object key {key[:200]!r} {fault}; use short relative keys, as made by blobsync.bucket.keys"
        )
    return key


def checked_range(start: int, size_bytes: int | None) -> None:
    """Refuse a range that means nothing.

    Raises:
        ValueError: a negative number; a defect of the caller.
    """
    if start < 0 or (size_bytes is not None and size_bytes < 0):
        raise ValueError(f"a range of {size_bytes} bytes from {start} on: neither may be negative")
