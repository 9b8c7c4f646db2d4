"""An attempt's log within its limit: its beginning and its end, half of the limit each, and a line between.

The driver and its children append directly to one file. Above the limit, the middle of the file is punched
out repeatedly; offsets in the file stay the same. The readable text depends only on the file's size and the
limit, so a worker can continue an upload that a runner began. While the log grows, only its first half can be
read, so text that was read never changes.
Any thread, any process.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from pathlib import Path

from nimbus.domain.wording import format_size
from nimbus.worker.attempt_folder import AttemptFolder

_PUNCH_HOLE = 1 | 2
"""FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE."""
_libc = ctypes.CDLL(None, use_errno=True)
_fallocate = _libc.fallocate
_fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the readable text: `text`, or a range of the file."""

    size: int
    start: int = 0
    text: bytes | None = None


class LimitedLog:
    """The readable text of one log."""

    def __init__(self, file: Path, limit_bytes: int) -> None:
        self._file, self._limit = file, limit_bytes
        self._half = limit_bytes // 2
        self._freed = self._half
        """The hole reaches from `_half` to this offset."""

    @classmethod
    def of(cls, folder: AttemptFolder) -> LimitedLog:
        """The log in an attempt's folder, within its limit."""
        return cls(folder.log, folder.log_limit())

    def size(self, *, complete: bool) -> int:
        """Length of the readable text in bytes.

        Args:
            complete: The log does not grow any more.
        """
        return sum(piece.size for piece in self._pieces(complete))

    def read(self, offset: int, limit: int, *, complete: bool) -> bytes:
        """Read up to `limit` bytes of the readable text."""
        told = bytearray()
        for piece in self._pieces(complete):
            skipped = min(offset, piece.size)
            offset -= skipped
            wanted = min(piece.size - skipped, limit - len(told))
            if wanted > 0:
                told += self._bytes_of(piece, skipped, wanted)
        return bytes(told)

    def free_middle(self) -> None:
        """Free the disk blocks of the unreadable middle.

        Raises:
            OSError: the file system cannot do that.
        """
        size = self._file_size()
        end = size - self._half
        if size <= self._limit or end <= self._freed:
            return
        fd = os.open(self._file, os.O_WRONLY | os.O_CLOEXEC)
        try:
            # From the start of the hole, so that blocks that were freed only in part are freed, too.
            if _fallocate(fd, _PUNCH_HOLE, self._half, end - self._half) != 0:
                why = os.strerror(ctypes.get_errno())
                raise OSError(f"the file system of {self._file} cannot free the middle of a file: {why}")
        finally:
            os.close(fd)
        self._freed = end

    def _pieces(self, complete: bool) -> list[_Piece]:
        size = self._file_size()
        if size <= self._limit:
            return [_Piece(size if complete else min(size, self._half))]
        reached = (
            f"\n[nimbus: the log has reached its limit of {format_size(self._limit)}: only its end is kept "
            "from here on, and shown when the attempt has ended]\n"
        ).encode()
        pieces = [_Piece(self._half), _Piece(len(reached), text=reached)]
        if complete:
            left_out = f"[nimbus: {size - 2 * self._half} bytes are left out here]\n".encode()
            pieces += [_Piece(len(left_out), text=left_out), _Piece(self._half, start=size - self._half)]
        return pieces

    def _bytes_of(self, piece: _Piece, skipped: int, wanted: int) -> bytes:
        if piece.text is not None:
            return piece.text[skipped : skipped + wanted]
        with self._file.open("rb") as log:
            log.seek(piece.start + skipped)
            return log.read(wanted)

    def _file_size(self) -> int:
        try:
            return self._file.stat().st_size
        except FileNotFoundError:
            return 0
