"""Bytes on their way into a file: at an offset, and from a socket without leaving the kernel."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

from blobsync.storage.ports import CHUNK_BYTES


class FileWriteError(Exception):
    """The file that is to be filled did not take the bytes."""


class Pipe:
    """Room in the kernel between a socket and a file."""

    def __init__(self) -> None:
        self._out, self._into = os.pipe2(os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # beyond what this user may have: it stays smaller
            fcntl.fcntl(self._into, fcntl.F_SETPIPE_SZ, CHUNK_BYTES)

    def fill(self, source: int, most: int) -> int:
        """Take from a socket what is there, into the empty pipe."""
        return os.splice(source, self._into, most, flags=os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK)

    def drain(self, fd: int, size: int, offset: int) -> None:
        """Write what is in the pipe into a file."""
        while size:
            try:
                done = os.splice(self._out, fd, size, offset_dst=offset, flags=os.SPLICE_F_MOVE)
            except OSError as exc:
                if exc.errno != errno.EINVAL:
                    raise FileWriteError(str(exc)) from exc
                piece = os.read(self._out, size)  # a file system without splice
                write_at(fd, piece, offset)
                done = len(piece)
            size, offset = size - done, offset + done

    def close(self) -> None:
        """Close both ends."""
        os.close(self._out)
        os.close(self._into)


def write_at(fd: int, piece: bytes, offset: int) -> None:
    """Write all of `piece` at an offset of a file.

    Raises:
        FileWriteError: the file did not take it.
    """
    try:
        view = memoryview(piece)
        while view:
            done = os.pwrite(fd, view, offset)
            view, offset = view[done:], offset + done
    except OSError as exc:
        raise FileWriteError(str(exc)) from exc
