"""Reads the files to publish, so that no bytes are sent under the digest of others.

A file is read twice: once to compute its digest, and, if the store lacks it, once to send it. The second time
its digest must be the same. The publish sends the bytes whose digest was compared, not the file.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from blake3 import blake3

from blobsync.bucket.ports import OnProgress
from blobsync.bucket.verification import MemoryReader, verify_object
from blobsync.errors import CorruptBlobError, LocalStoreError, SourceChangedError, UnsafeSourceError
from blobsync.local.disk_state import advice
from blobsync.publishing.sources import SourceFile
from blobsync.release.manifest import CHUNK_BYTES, Artifact, Blob

READ_BYTES = 256 << 10
_FICLONE = 0x40049409  # linux/fs.h; shares the extents of another file where the file system can


class BlobDigest:
    """Computes the digests of a blob, piece by piece.

    Args:
        chunks: Compute the digests of chunks. False: the blob is too small to have any.
        sha256: SHA-256 of the blob, if known. Then only chunks are hashed, in a quarter of the time.
    """

    def __init__(self, *, chunks: bool = True, sha256: str | None = None) -> None:
        self._has_chunks = chunks
        self._known_sha256 = sha256
        self._sha256 = hashlib.sha256()
        self._size_bytes = 0
        self._chunk = blake3()
        self._chunk_bytes = 0
        self._chunks: list[str] = []

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        view = memoryview(data).cast("B")
        if self._known_sha256 is None:
            self._sha256.update(view)
        self._size_bytes += len(view)
        if not self._has_chunks:
            return
        while view:
            part = view[: CHUNK_BYTES - self._chunk_bytes]
            self._chunk.update(part)
            self._chunk_bytes += len(part)
            view = view[len(part) :]
            if self._chunk_bytes == CHUNK_BYTES:
                self._end_chunk()

    def blob(self) -> Blob:
        """The blob. `update` must not be called afterwards."""
        if self._chunk_bytes:
            self._end_chunk()
        chunks = tuple(self._chunks) if self._size_bytes > CHUNK_BYTES else ()
        return Blob(self._known_sha256 or self._sha256.hexdigest(), self._size_bytes, chunks)

    def _end_chunk(self) -> None:
        self._chunks.append(self._chunk.hexdigest())
        self._chunk, self._chunk_bytes = blake3(), 0


def hash_file(source: SourceFile, buffer: memoryview, on_progress: OnProgress) -> Artifact:
    """Compute the digests of a file, and check that it did not change meanwhile.

    `buffer` is for reading, and of this thread only. SourceChangedError if the file changed,
    UnsafeSourceError if it is not a regular file.
    """
    with _opened(source) as fd:
        before = os.fstat(fd)
        digest = BlobDigest(chunks=before.st_size > CHUNK_BYTES)
        while got := os.readv(fd, [buffer]):
            digest.update(buffer[:got])
            on_progress(got)
        blob = digest.blob()
        if _identity(os.fstat(fd)) != _identity(before) or before.st_size != blob.size_bytes:
            raise SourceChangedError(source.path)
    return Artifact(source.path, blob.size_bytes, blob.sha256, source.role, source.executable, blob.chunks)


def read_file(source: SourceFile, blob: Blob) -> bytes:
    """Read a small file that was hashed before. SourceChangedError if it has other bytes now."""
    with _opened(source) as fd:
        pieces = []
        left = blob.size_bytes + 1  # one more, to see whether it has grown
        while left and (piece := os.read(fd, left)):
            pieces.append(piece)
            left -= len(piece)
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    try:
        verify_object(MemoryReader(data), len(data), blob)
    except CorruptBlobError as exc:
        raise SourceChangedError(source.path) from exc
    return data


@contextmanager
def snapshot(source: SourceFile, blob: Blob, scratch: Path | None, on_progress: OnProgress) -> Iterator[Path]:
    """Make a private copy of a large file that was hashed before; no other process can change the copy.

    The copy has no name, so that nothing is left of it when the process is killed. It shares its blocks with
    the file if the file system supports that. `scratch` is a folder with room for it; None: that for
    temporary files. SourceChangedError if the file has other bytes now.
    """
    with unnamed_file(scratch) as (copy, path):
        with _opened(source) as fd:
            _check(source, blob, fd, _Copy(copy.fileno(), scratch), on_progress)
        yield path


@contextmanager
def unnamed_file(scratch: Path | None) -> Iterator[tuple[IO[bytes], Path]]:
    """A file without a name, and a path by which this process can open it."""
    try:
        file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - closed below
    except OSError as exc:
        raise scratch_error("no file can be made", scratch, exc) from exc
    with file:
        yield file, Path(f"/proc/self/fd/{file.fileno()}")


def scratch_error(what: str, scratch: Path | None, exc: OSError) -> LocalStoreError:
    """The error for a failure in the folder for temporary files."""
    folder = scratch or tempfile.gettempdir()
    return LocalStoreError(
        f"{what} in {folder} for publishing: {exc}; {advice(exc, folder)}; or choose another folder by "
        f"`scratch`, with room for the largest files"
    )


class _Copy(NamedTuple):
    fd: int
    scratch: Path | None

    def write(self, data: memoryview) -> None:
        try:
            while data:
                data = data[os.write(self.fd, data) :]
        except OSError as exc:
            raise scratch_error("no copy can be written", self.scratch, exc) from exc


def _check(source: SourceFile, blob: Blob, fd: int, copy: _Copy, on_progress: OnProgress) -> None:
    is_clone = _clone(fd, copy.fd)
    if is_clone:
        fd = copy.fd
    digest = BlobDigest(chunks=bool(blob.chunks), sha256=blob.sha256 if blob.chunks else None)
    buffer, size = memoryview(bytearray(READ_BYTES)), 0
    while got := os.preadv(fd, [buffer], size):
        digest.update(buffer[:got])
        if not is_clone:
            copy.write(buffer[:got])
        size += got
        if size > blob.size_bytes:
            break
        on_progress(got)
    if size != blob.size_bytes or digest.blob() != blob:
        raise SourceChangedError(source.path)


def _clone(fd: int, copy_fd: int) -> bool:
    try:
        fcntl.ioctl(copy_fd, _FICLONE, fd)
    except OSError:
        return False
    return True


def _identity(stat: os.stat_result) -> tuple[int, int, int]:
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


@contextmanager
def _opened(source: SourceFile) -> Iterator[int]:
    """Open a regular file for reading. Translates disk errors, also those raised in the `with` block."""
    try:
        # O_NONBLOCK: the file may have been replaced by a pipe.
        fd = os.open(source.file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise UnsafeSourceError(f"{source.file} is no regular file; leave it out")
            yield fd
        finally:
            os.close(fd)
    except FileNotFoundError as exc:
        raise SourceChangedError(source.path) from exc
    except OSError as exc:
        raise LocalStoreError(
            f"{source.file} cannot be read for publishing: {exc}; {advice(exc, source.file.parent)}"
        ) from exc
