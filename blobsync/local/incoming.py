"""One object that is being received, in a partial file that a later process can continue.

The receiver locks the file, so a host fetches an object once: see `partials`. The content of an existing file
is not trusted: its chunks are hashed before they count, and the whole object is verified before it gets its
name. Disk space is reserved before the first byte is fetched, so an object that does not fit takes no space
from others.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from pathlib import Path
from types import TracebackType

from blobsync.bucket.ports import ignore_progress
from blobsync.bucket.verification import hash_range, verify_chunk
from blobsync.errors import CorruptBlobError, InvalidPackError, LocalStoreError
from blobsync.local.disk import (
    READ_ONLY,
    UNREADABLE,
    FileReader,
    fsync_folder,
    identity,
    reserve,
    start_writing,
)
from blobsync.local.objects import ObjectFiles
from blobsync.release.layout import StoredObject
from blobsync.release.manifest import CHUNK_BYTES, Blob


def receive(objects: ObjectFiles, item: StoredObject) -> Incoming | None:
    """See `blobsync.LocalStore.receive`. OSError passes through."""
    base = objects.base
    base.step("receive-open")
    claim = objects.partials.claim(item.name)
    if claim is None:
        return None
    path, fd = claim
    try:
        if objects.has(item):  # another process has just installed it
            os.ftruncate(fd, 0)  # so that `_close` removes it, and only once
            _close(objects, path, fd)
            return None
        if os.fstat(fd).st_size > item.size_bytes:
            os.ftruncate(fd, 0)
        base.disk.need_room(item.size_bytes - os.fstat(fd).st_blocks * 512, f"receiving {item.name}")
        base.step("receive-reserve")
        reserve(fd, item.size_bytes)
        return Incoming(objects, item, path, fd)
    except BaseException:
        with contextlib.suppress(OSError):
            _close(objects, path, fd)
        raise


def _close(objects: ObjectFiles, path: Path, fd: int) -> None:
    """Close the file. Its content stays; an empty file is removed, with its reserved space."""
    with contextlib.suppress(OSError):
        if os.fstat(fd).st_size == 0:
            path.unlink(missing_ok=True)
    objects.partials.release(fd)
    os.close(fd)


class Incoming:
    """A download. Use it in a `with`; without `install`, the received bytes are kept to be continued later.

    `took` may be called on several threads, all other methods on one at a time.

    Attributes:
        fd: Write to it with `pwrite`: a blob with chunks in any order, any other object in order from its
            start, because the length of the file says how much has been received.
    """

    def __init__(self, objects: ObjectFiles, item: StoredObject, path: Path, fd: int) -> None:
        self.item = item
        self.fd = fd
        self._objects = objects
        self._path = path
        self._chunks: _ChunkHashes | None = None
        if isinstance(item, Blob) and item.chunks:
            self._chunks = _ChunkHashes(fd, item, also_sha256=objects.also_sha256)
        self._open = True

    def __enter__(self) -> Incoming:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(exc, OSError | LocalStoreError):  # a write into the partial file failed
                # Raises it as a LocalStoreError, and notes it as the state of the disk.
                with self._objects.base.disk.errors(f"receiving {self.item.name}"):
                    raise exc
        finally:
            self.close()

    def close(self) -> None:
        """Close the file; its content stays. Safe to repeat."""
        if self._open:
            self._open = False
            _close(self._objects, self._path, self.fd)

    def missing(self) -> list[tuple[int, int]]:
        """Ranges to fetch, `(start, size)`: those of the missing chunks, or the rest of the object.

        A file that cannot be read is deleted, so the next try begins again.
        """
        with self._objects.base.disk.errors(f"resuming {self.item.name}"):
            length = os.fstat(self.fd).st_size
            if self._chunks is None:
                return [] if length == self.item.size_bytes else [(length, self.item.size_bytes - length)]
            try:
                self._chunks.verify_up_to(length)
            except OSError as exc:
                if exc.errno in UNREADABLE:
                    self._path.unlink(missing_ok=True)
                raise
            return [self._chunks.range(number) for number in self._chunks.missing]

    def took(self, start: int, size_bytes: int) -> None:
        """Note that a range of `missing` is completely written. Verifies a chunk; starts its disk write.

        CorruptBlobError: the chunk has wrong bytes; it is still missing, and can be fetched again.
        """
        with self._objects.base.disk.errors(f"receiving {self.item.name}"):
            if self._chunks is not None:
                number = start // CHUNK_BYTES
                if (start, size_bytes) != self._chunks.range(number):
                    raise ValueError(
                        f"{size_bytes} bytes from {start} on are not a chunk of {self.item.name}"
                    )
                self._objects.base.step("took")
                self._chunks.verify(number)
            start_writing(self.fd, start, size_bytes)

    def install(self) -> None:
        """Verify the whole object, flush it, and give it its name. Wrong bytes are deleted.

        They raise a CorruptBlobError, a malformed pack an InvalidPackError.
        """
        base = self._objects.base
        with base.disk.errors(f"installing {self.item.name}", writes=True):
            try:
                start_writing(self.fd, 0, self.item.size_bytes)
                base.step("verify")
                sha256 = self._verify_all()
                base.step("fsync")
                os.fchmod(self.fd, READ_ONLY)
                # Never repeated after a failure: the kernel may mark pages clean that it did not write.
                os.fsync(self.fd)
            except (CorruptBlobError, InvalidPackError, OSError):
                self._path.unlink(missing_ok=True)
                raise
            self._name(sha256)

    def _name(self, sha256: str | None) -> None:
        base, path = self._objects.base, self._objects.path(self.item)
        base.make_folder(path.parent)
        self._objects.partials.release(self.fd)  # a later touch would change the time of the verified file
        if self._objects.has(self.item):  # another process took over while this one was stopped: `partials`
            self._path.unlink(missing_ok=True)
            return
        base.step("rename")
        self._path.replace(path)
        try:
            base.step("fsync-folder")
            fsync_folder(path.parent)
        except OSError:
            path.unlink(missing_ok=True)  # its name may not be on the disk
            raise
        base.step("index")
        self._objects.note_verified(self.item, identity(os.fstat(self.fd)), sha256)

    def _verify_all(self) -> str | None:
        """Returns the SHA-256 of a chunked blob, if required: see `verify_object`."""
        if self._chunks is None:
            return self._objects.verify(self.fd, self.item)
        size = os.fstat(self.fd).st_size
        if size != self.item.size_bytes:
            raise CorruptBlobError(
                f"blob {self.item.name} came as {size} bytes, not {self.item.size_bytes}; it was dropped"
            )
        return self._chunks.finish()


class _ChunkHashes:
    """Which chunks of a blob are verified, and the SHA-256 of the whole blob, if required.

    `verify` may be called on several threads. Each byte is hashed once with each digest. A chunk that arrives
    in order is read once for both; any other is read a second time when all chunks before it are here.
    """

    def __init__(self, fd: int, blob: Blob, *, also_sha256: bool) -> None:
        self._read, self._blob = FileReader(fd), blob
        self._good: set[int] = set()
        self._sha256 = hashlib.sha256() if also_sha256 else None
        self._hashed_chunks = 0
        self._hashing = threading.Lock()

    @property
    def missing(self) -> list[int]:
        return [number for number in range(len(self._blob.chunks)) if number not in self._good]

    def range(self, number: int) -> tuple[int, int]:
        start = number * CHUNK_BYTES
        return start, min(CHUNK_BYTES, self._blob.size_bytes - start)

    def verify(self, number: int) -> None:
        """Hash a chunk. CorruptBlobError if it has wrong bytes."""
        whole = None
        in_order = self._sha256 is not None and self._hashing.acquire(blocking=False)
        try:
            if in_order and number == self._hashed_chunks and self._sha256 is not None:
                whole = self._sha256.copy()  # the bytes may be wrong
            verify_chunk(self._read, self._blob, number, whole)
            self._good.add(number)
            if whole is not None:
                self._sha256, self._hashed_chunks = whole, number + 1
            if in_order:
                self._hash_what_follows()
        finally:
            if in_order:
                self._hashing.release()

    def verify_up_to(self, length: int) -> None:
        """Verify the chunks of an earlier try in a file of that length. Wrong ones stay missing."""
        for number in self.missing:
            if sum(self.range(number)) <= length:
                with contextlib.suppress(CorruptBlobError):
                    self.verify(number)

    def finish(self) -> str | None:
        """Verify the remaining chunks. Returns the SHA-256 of the whole blob, if required."""
        for number in self.missing:
            self.verify(number)
        with self._hashing:
            self._hash_what_follows()
        return None if self._sha256 is None else self._sha256.hexdigest()

    def _hash_what_follows(self) -> None:
        """Add the next verified chunks to the SHA-256 of the whole. The caller must hold `_hashing`."""
        while self._sha256 is not None and self._hashed_chunks in self._good:
            hash_range(self._read, *self.range(self._hashed_chunks), ignore_progress, self._sha256)
            self._hashed_chunks += 1
