"""One object that arrives, in a partial file that a later process can resume.

The file is locked by its receiver, so that a host fetches an object once: see `partials`. Nothing in it is
trusted: chunks found there are hashed before they count as here, and the whole is verified before it gets its
name. Its room on the disk is set aside before its first byte is fetched, so an object for which there is no
room takes none from others.
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
        if objects.has(item):  # installed by another just now
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
    """Close the file. What is in it stays; a file without bytes is removed, with the room it may hold."""
    with contextlib.suppress(OSError):
        if os.fstat(fd).st_size == 0:
            path.unlink(missing_ok=True)
    objects.partials.release(fd)
    os.close(fd)


class Incoming:
    """A download. Use it in a `with`; leaving that without `install` keeps what came for a later resume.

    `took` may be called on several threads, all other methods on one at a time.

    Attributes:
        item: What it will be.
        fd: To be written with `pwrite`. A blob with chunks in any order; anything else from its beginning on,
            in order, since its length says how much of it is there.
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
            if isinstance(exc, OSError | LocalStoreError):  # of a write into our file
                # As a LocalStoreError, and as the state of the disk.
                with self._objects.base.disk.errors(f"receiving {self.item.name}"):
                    raise exc
        finally:
            self.close()

    def close(self) -> None:
        """Close the file; what is in it stays. Safe to repeat."""
        if self._open:
            self._open = False
            _close(self._objects, self._path, self.fd)

    def missing(self) -> list[tuple[int, int]]:
        """Ranges to fetch, `(start, size)`: those of chunks that are not here, or the rest of the object.

        Raises:
            LocalStoreError: the disk failed.
        """
        with self._objects.base.disk.errors(f"resuming {self.item.name}"):
            length = os.fstat(self.fd).st_size
            if self._chunks is None:
                return [] if length == self.item.size_bytes else [(length, self.item.size_bytes - length)]
            for number in self._chunks.missing:
                if sum(self._chunks.range(number)) <= length:
                    with contextlib.suppress(CorruptBlobError):
                        self._chunks.verify(number)
            return [self._chunks.range(number) for number in self._chunks.missing]

    def took(self, start: int, size_bytes: int) -> None:
        """A range of `missing` is written whole: verify it, if it is a chunk, and let the disk begin with it.

        Raises:
            CorruptBlobError: a chunk with other bytes. It is missing still, and can be fetched again.
            LocalStoreError: the disk failed.
            ValueError: no such range; a defect of the caller.
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
        """Verify all, put it on the disk, and give it its name. Wrong bytes are dropped.

        Raises:
            CorruptBlobError: other bytes than promised came; for packs, a CorruptPackError.
            InvalidPackError: the pack was made wrong.
            LocalStoreError: the disk failed.
        """
        base = self._objects.base
        with base.disk.errors(f"installing {self.item.name}", writes=True):
            try:
                start_writing(self.fd, 0, self.item.size_bytes)
                base.step("verify")
                sha256 = self._verify_all()
                base.step("fsync")
                os.fchmod(self.fd, READ_ONLY)
                # Never tried again after a failure: the pages may be marked clean, and are not on the disk.
                os.fsync(self.fd)
            except (CorruptBlobError, InvalidPackError, OSError):
                self._path.unlink(missing_ok=True)
                raise
            self._name(sha256)

    def _name(self, sha256: str | None) -> None:
        base, path = self._objects.base, self._objects.path(self.item)
        base.make_folder(path.parent)
        self._objects.partials.release(self.fd)  # what is touched from now on is another file than verified
        if self._objects.has(self.item):  # another took over while we did not run, see `partials`
            self._path.unlink(missing_ok=True)
            return
        base.step("rename")
        self._path.replace(path)
        try:
            base.step("fsync-folder")
            fsync_folder(path.parent)
        except OSError:
            path.unlink(missing_ok=True)  # its name is not on the disk, and never may be
            raise
        base.step("index")
        self._objects.note_verified(self.item, identity(os.fstat(self.fd)), sha256)

    def _verify_all(self) -> str | None:
        """Returns the SHA-256 of a chunked blob, if it is asked for: see `verify_object`."""
        if self._chunks is None:
            return self._objects.verify(self.fd, self.item)
        size = os.fstat(self.fd).st_size
        if size != self.item.size_bytes:
            raise CorruptBlobError(
                f"blob {self.item.name} came as {size} bytes, not {self.item.size_bytes}; it was dropped"
            )
        return self._chunks.finish()


class _ChunkHashes:
    """Which chunks of a blob are verified, and the SHA-256 of the whole, if that is asked for.

    `verify` may be called on several threads. Each byte is hashed once with either digest: by one read for
    both where a chunk comes in its turn, else by a second one when those before it are here.

    Args:
        fd: The file.
        blob: What it will be; with chunks.
        also_sha256: Compute that of the whole, too.
    """

    def __init__(self, fd: int, blob: Blob, *, also_sha256: bool) -> None:
        self._read, self._blob = FileReader(fd), blob
        self._good: set[int] = set()
        self._sha256 = hashlib.sha256() if also_sha256 else None
        self._hashed_chunks = 0
        self._hashing = threading.Lock()

    @property
    def missing(self) -> list[int]:
        """Numbers of the chunks that are not verified, in order."""
        return [number for number in range(len(self._blob.chunks)) if number not in self._good]

    def range(self, number: int) -> tuple[int, int]:
        """Where a chunk begins, and its size."""
        start = number * CHUNK_BYTES
        return start, min(CHUNK_BYTES, self._blob.size_bytes - start)

    def verify(self, number: int) -> None:
        """Hash a chunk.

        Raises:
            CorruptBlobError: it has other bytes.
            OSError: the disk failed.
        """
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

    def finish(self) -> str | None:
        """Verify the chunks that are not yet. Returns the SHA-256 of the whole, if it is asked for.

        Raises:
            CorruptBlobError, OSError: as of `verify`.
        """
        for number in self.missing:
            self.verify(number)
        with self._hashing:
            self._hash_what_follows()
        return None if self._sha256 is None else self._sha256.hexdigest()

    def _hash_what_follows(self) -> None:
        """Feed the SHA-256 of the whole with the good chunks that are next. Our caller has the lock."""
        while self._sha256 is not None and self._hashed_chunks in self._good:
            hash_range(self._read, *self.range(self._hashed_chunks), ignore_progress, self._sha256)
            self._hashed_chunks += 1
