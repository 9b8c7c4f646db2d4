"""The source of an upload: bytes or a file, and slices of it that the S3 client reads and rewinds."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from blobsync.bucket.ports import PIECE_BYTES, OnProgress
from blobsync.errors import BlobSyncError, LocalStoreError

_TICK_S = 1.0


class Source:
    """Bytes by offset. Thread-safe."""

    def __init__(self, data: bytes | None, fd: int, what: str) -> None:
        self._data, self._fd, self._what = data, fd, what
        self._found = None if data is not None else os.fstat(fd)
        self.size_bytes = len(data) if data is not None else os.fstat(fd).st_size

    def at(self, offset: int, most: int) -> bytes:
        """Some bytes from `offset` on; none at the end."""
        if self._data is not None:
            return self._data[offset : offset + most]
        try:
            return os.pread(self._fd, most, offset)
        except OSError as exc:
            raise LocalStoreError(f"{self._what} cannot be read for its upload: {exc}") from exc

    def check_unchanged(self) -> None:
        """Check that the file is as it was when it was opened. LocalStoreError if a process wrote to it."""
        if self._found is None:
            return
        now = os.fstat(self._fd)
        if (now.st_size, now.st_mtime_ns) != (self._found.st_size, self._found.st_mtime_ns):
            raise LocalStoreError(
                f"{self._what} changed while it was being uploaded, so nothing of it became visible; upload "
                f"it again when nothing writes to it"
            )


@contextmanager
def opened(data: bytes | Path) -> Iterator[Source]:
    """Open the source of an upload. LocalStoreError if it does not exist, or cannot be read."""
    if isinstance(data, bytes):
        yield Source(data, -1, "bytes in memory")
        return
    try:
        fd = os.open(data, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as exc:
        raise LocalStoreError(f"{data} cannot be read for its upload: {exc}") from exc
    try:
        yield Source(None, fd, str(data))
    finally:
        os.close(fd)


class SerialProgress:
    """Calls one `on_progress` for all threads of an upload: one at a time, and not again after it raised."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._lock = threading.Lock()
        self._told_at = time.monotonic()
        self.stopped_by: BaseException | None = None

    def came(self, size_bytes: int) -> None:
        """Note that the store has received this many bytes more."""
        with self._lock:
            self._tell(size_bytes)

    def tick(self) -> None:
        """Note that bytes are being sent. Calls `on_progress(0)` about once a second."""
        with self._lock:
            if self.stopped_by is not None:
                raise self.stopped_by
            if time.monotonic() - self._told_at >= _TICK_S:
                self._tell(0)

    def stop(self, why: BaseException) -> None:
        """Make the threads that send other parts end soon."""
        with self._lock:
            self.stopped_by = self.stopped_by or why

    def _tell(self, size_bytes: int) -> None:
        if self.stopped_by is not None:
            raise self.stopped_by
        self._told_at = time.monotonic()
        try:
            self._on_progress(size_bytes)
        except BaseException as exc:
            self.stopped_by = exc
            raise


class Slice(io.RawIOBase):
    """A slice of a source as a file, which the client may read twice. Used by one thread at a time."""

    def __init__(self, source: Source, start: int, size_bytes: int, watched: SerialProgress) -> None:
        self._source, self._start, self.size_bytes, self._watched = source, start, size_bytes, watched
        self._at = 0

    @property
    def file(self) -> IO[bytes]:
        """This object, typed as the client requires."""
        return cast("IO[bytes]", self)

    def readable(self) -> bool:
        """True."""
        return True

    def seekable(self) -> bool:
        """True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See `io.RawIOBase`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size_bytes}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """See `io.RawIOBase`."""
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """See `io.RawIOBase`."""
        self._watched.tick()
        left = max(0, self.size_bytes - self._at)
        most = left if size is None or size < 0 else min(size, left)
        try:
            data = self._source.at(self._start + self._at, most) if most else b""
        except BlobSyncError as exc:  # the client would report it as a connection error
            self._watched.stop(exc)
            raise
        self._at += len(data)
        return data

    def md5(self) -> bytes:
        """MD5 of the whole slice."""
        digest = hashlib.md5(usedforsecurity=False)
        self.seek(0)
        while chunk := self.read(PIECE_BYTES):
            digest.update(chunk)
        self.seek(0)
        return digest.digest()

    def content_md5(self) -> str:
        """The same in base64, for the header Content-MD5."""
        return base64.b64encode(self.md5()).decode()
