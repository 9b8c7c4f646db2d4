"""Reading files to publish: every byte that leaves was hashed just before, or is compared with what was.

A file is read twice: once to learn its digest, and, if the store lacks it, once to send it. The second time
its digest must be the same, and what is sent is not the file but the very bytes that were compared.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from blake3 import blake3

from blobsync.disk_advice import advice
from blobsync.errors import LocalStoreError, SourceChangedError, UnsafeSourceError
from blobsync.publishing.sources import SourceFile
from blobsync.release.blob import CHUNK_BYTES, Blob, BlobDigest
from blobsync.release.manifest import Artifact

READ_BYTES = 256 << 10
_FICLONE = 0x40049409  # linux/fs.h; shares the extents of another file where the file system can

Going = Callable[[int], None]
"""Told how many bytes were read since the last time; it raises to stop."""


def hash_file(source: SourceFile, buffer: memoryview, going: Going) -> Artifact:
    """Learn what a file is, and be sure that it was one file from beginning to end.

    Args:
        source: Which file.
        buffer: Room to read into, of this thread alone.
        going: See `Going`.

    Raises:
        SourceChangedError: it changed meanwhile.
        UnsafeSourceError: it is no regular file.
        LocalStoreError: it cannot be read.
    """
    with _opened(source) as fd:
        before = os.fstat(fd)
        digest = BlobDigest() if before.st_size > CHUNK_BYTES else _PlainDigest()
        while got := os.readv(fd, [buffer]):
            digest.update(buffer[:got])
            going(got)
        blob = digest.blob()
        if _identity(os.fstat(fd)) != _identity(before) or before.st_size != blob.size_bytes:
            raise SourceChangedError(source.path)
    return Artifact(source.path, blob.size_bytes, blob.sha256, source.role, source.executable, blob.chunks)


def read_file(source: SourceFile, blob: Blob) -> bytes:
    """The bytes of a small file that was hashed before.

    Raises:
        SourceChangedError: it has other bytes now.
        LocalStoreError: it cannot be read.
    """
    with _opened(source) as fd:
        pieces = []
        left = blob.size_bytes + 1  # one more, to see that it ends
        while left and (piece := os.read(fd, left)):
            pieces.append(piece)
            left -= len(piece)
    data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    if len(data) != blob.size_bytes or hashlib.sha256(data).hexdigest() != blob.sha256:
        raise SourceChangedError(source.path)
    return data


@contextmanager
def snapshot(source: SourceFile, blob: Blob, scratch: Path | None, going: Going) -> Iterator[Path]:
    """A private copy of a large file that was hashed before, which nobody can change.

    It has no name, so that nothing is left of it when the process is killed, and shares its blocks with the
    file where the file system can do that.

    Args:
        source: Which file.
        blob: What it was.
        scratch: A folder with room for it; None: the folder for temporary files.
        going: See `Going`.

    Raises:
        SourceChangedError: it has other bytes now.
        LocalStoreError: it cannot be read, or copied.
    """
    with unnamed_file(scratch) as (copy, path):
        with _opened(source) as fd:
            _check(source, blob, fd, _Copy(copy.fileno(), scratch), going)
        yield path


@contextmanager
def unnamed_file(scratch: Path | None) -> Iterator[tuple[IO[bytes], Path]]:
    """A file that nobody else sees, and a path by which this process may open it.

    Raises:
        LocalStoreError: there is no such folder, or it may not be written.
    """
    try:
        file = tempfile.TemporaryFile(dir=scratch)  # noqa: SIM115 - closed below
    except OSError as exc:
        raise scratch_error("no file can be made", scratch, exc) from exc
    with file:
        yield file, Path(f"/proc/self/fd/{file.fileno()}")


def scratch_error(what: str, scratch: Path | None, exc: OSError) -> LocalStoreError:
    """Say that the folder for temporary files failed, and what to do."""
    folder = scratch or tempfile.gettempdir()
    return LocalStoreError(
        f"{what} in {folder} for publishing: {exc}; {advice(exc, folder)}; or choose another folder by "
        f"`scratch`, with room for the largest files"
    )


class _Copy(NamedTuple):
    """A file that a source is copied to."""

    fd: int
    scratch: Path | None

    def write(self, data: memoryview) -> None:
        try:
            while data:
                data = data[os.write(self.fd, data) :]
        except OSError as exc:
            raise scratch_error("no copy can be written", self.scratch, exc) from exc


def _check(source: SourceFile, blob: Blob, fd: int, copy: _Copy, going: Going) -> None:
    is_clone = _clone(fd, copy.fd)
    if is_clone:
        fd = copy.fd
    digest = _ChunkDigest(blob) if blob.chunks else _PlainDigest()
    buffer, size = memoryview(bytearray(READ_BYTES)), 0
    while got := os.preadv(fd, [buffer], size):
        digest.update(buffer[:got])
        if not is_clone:
            copy.write(buffer[:got])
        size += got
        if size > blob.size_bytes:
            break
        going(got)
    if size != blob.size_bytes or digest.blob() != blob:
        raise SourceChangedError(source.path)


def _clone(fd: int, copy_fd: int) -> bool:
    try:
        fcntl.ioctl(copy_fd, _FICLONE, fd)
    except OSError:
        return False
    return True


class _PlainDigest:
    """`BlobDigest` for files without chunks."""

    def __init__(self) -> None:
        self._sha256, self._size_bytes = hashlib.sha256(), 0

    def update(self, data: memoryview) -> None:
        self._sha256.update(data)
        self._size_bytes += len(data)

    def blob(self) -> Blob:
        return Blob(self._sha256.hexdigest(), self._size_bytes)


class _ChunkDigest:
    """Compares with a chunked blob by its chunks, which is four times as fast as by SHA-256."""

    def __init__(self, expected: Blob) -> None:
        self._expected, self._size_bytes = expected, 0
        self._chunk, self._chunks = blake3(), list[str]()

    def update(self, data: memoryview) -> None:
        while data:
            part = data[: CHUNK_BYTES - self._size_bytes % CHUNK_BYTES]
            self._chunk.update(part)
            self._size_bytes += len(part)
            data = data[len(part) :]
            if self._size_bytes % CHUNK_BYTES == 0:
                self._end()

    def blob(self) -> Blob:
        if self._size_bytes % CHUNK_BYTES:
            self._end()
        return Blob(self._expected.sha256, self._size_bytes, tuple(self._chunks))

    def _end(self) -> None:
        self._chunks.append(self._chunk.hexdigest())
        self._chunk = blake3()


def _identity(found: os.stat_result) -> tuple[int, int, int]:
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


@contextmanager
def _opened(source: SourceFile) -> Iterator[int]:
    """A regular file, open for reading. Errors of the disk in our words, within, too."""
    try:
        # A pipe that took the file's place must not hold us up.
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
