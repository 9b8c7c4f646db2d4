"""One object on its way into the store, in a file that the next process can go on with.

The file is locked by whoever receives the object, so that a host fetches it once: see `partials`. Nothing in
it is trusted: chunks found there are hashed before they are left out, and all is verified before it gets its
name.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import TracebackType

from blobsync.errors import CorruptBlobError, InvalidPackError, LocalStoreError
from blobsync.local.chunk_hashes import ChunkHashes
from blobsync.local.disk import (
    READ_ONLY,
    fsync_folder,
    identity,
    reserve,
    start_writing,
)
from blobsync.local.objects import ObjectFiles
from blobsync.release.blob import CHUNK_BYTES, Blob
from blobsync.release.objects import StoredObject

_RESERVE_FROM_BYTES = 1 << 20


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
            path.unlink(missing_ok=True)
            _let_go(objects, fd)
            return None
        found = os.fstat(fd)
        if found.st_size > item.size_bytes:
            os.ftruncate(fd, 0)
        if item.size_bytes >= _RESERVE_FROM_BYTES:
            base.disk.need_room(item.size_bytes - found.st_blocks * 512, f"receiving {item.name}")
            base.step("receive-reserve")
            reserve(fd, item.size_bytes)
        return Incoming(objects, item, path, fd)
    except BaseException:
        with contextlib.suppress(OSError):
            _let_go(objects, fd)
        raise


def _let_go(objects: ObjectFiles, fd: int) -> None:
    objects.partials.release(fd)
    os.close(fd)


class Incoming:
    """A download. Use it in a `with`; leaving that without `install` keeps what came for a later resume.

    `took` may be called on several threads, the rest on one.

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
        self._chunks: ChunkHashes | None = None
        if isinstance(item, Blob) and item.chunks:
            self._chunks = ChunkHashes(fd, item, also_sha256=objects.also_sha256)
        self._open = True

    def __enter__(self) -> Incoming:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, exc: BaseException | None, _trace: TracebackType | None
    ) -> None:
        try:
            if isinstance(exc, OSError | LocalStoreError):  # of a write into our file
                self._tell(exc)
        finally:
            self.close()

    def close(self) -> None:
        """Let go of the file; what is in it stays. Safe to repeat."""
        if self._open:
            self._open = False
            with contextlib.suppress(OSError):
                if os.fstat(self.fd).st_size == 0:  # nothing came: nothing to keep
                    self._path.unlink(missing_ok=True)
            _let_go(self._objects, self.fd)

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
        base.folders.make(path.parent)
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
        """Say the SHA-256 of a chunked blob, if it was to be computed: see `verify_object`."""
        if self._chunks is None:
            return self._objects.verify(self.fd, self.item)
        size = os.fstat(self.fd).st_size
        if size != self.item.size_bytes:
            raise CorruptBlobError(
                f"blob {self.item.name} came as {size} bytes, not {self.item.size_bytes}; it was dropped"
            )
        return self._chunks.finish()

    def _tell(self, exc: OSError | LocalStoreError) -> None:
        """Raises. The error of a write is told in our words, and remembered."""
        with self._objects.base.disk.errors(f"receiving {self.item.name}"):
            raise exc
