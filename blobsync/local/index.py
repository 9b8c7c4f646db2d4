"""Remembers which files were hashed, so that a store that is opened reads none of them again.

An append-only file with one line for each verified file; each line has a checksum. A line is a hint that a
file with exactly this identity had this digest: a lost, incomplete or foreign line only costs another hash.
So a failed write is no error. Several processes may append; each line is one write. A process that does not
find a file reads the lines that other processes have appended. Thread-safe.
"""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from pathlib import Path

from blobsync.local.disk import UNREADABLE, FileIdentity, replace_file

_COMPACT_ABOVE = 1000
"""The file is rewritten if it has more lines than twice its entries plus this number."""
_GONE = FileIdentity(-1, -1, -1)


class VerifiedIndex:
    """Digests of files by their place and identity.

    `part` is for an unfinished file: on the same file system, and used by no other process.
    """

    def __init__(self, path: Path, part: Path) -> None:
        self._path, self._part = path, part
        self._lock = threading.Lock()
        self._known: dict[str, tuple[FileIdentity, str]] = {}
        self._fd: int | None = None
        self._read_to = 0
        self._lines = 0
        self._torn = False
        self._open()
        if self._torn or self._lines > 2 * len(self._known) + _COMPACT_ABOVE:
            with contextlib.suppress(OSError):  # a full disk: the old file still works
                self._compact()

    def digest(self, place: str, identity: FileIdentity) -> str | None:
        """Digest of the file at `place`, if it is still the one that was hashed."""
        known = self._known.get(place)
        if known is None or known[0] != identity:
            with self._lock:
                self._catch_up()
            known = self._known.get(place)
        return known[1] if known is not None and known[0] == identity else None

    def verified(self, place: str, identity: FileIdentity, digest: str) -> None:
        """Note that this process hashed or wrote the file, and that it is on the disk."""
        with self._lock:
            self._known[place] = (identity, digest)
            self._append(_line(place, identity, digest))

    def forget(self, place: str) -> None:
        """Require this and other processes to hash the file before it counts again."""
        with self._lock:
            if self._known.pop(place, None) is not None:
                self._append(_line(place, _GONE, "-"))

    def close(self) -> None:
        """Close the file. Later calls write nothing to it."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _open(self) -> None:
        fd = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if self._fd is not None:  # closed only now: if the file cannot be opened, this one is still used
            os.close(self._fd)
        self._fd = fd
        self._read_to = self._lines = 0
        self._catch_up()

    def _catch_up(self) -> None:
        """Read the lines that any process has appended since. An incomplete line is read later."""
        if self._fd is None:
            return
        size = os.fstat(self._fd).st_size
        if size <= self._read_to:
            return
        try:
            data = os.pread(self._fd, size - self._read_to, self._read_to)
        except OSError as exc:
            if exc.errno not in UNREADABLE:
                raise
            self._read_to, self._torn = size, True  # the files of these lines are hashed again
            return
        whole, _, rest = data.rpartition(b"\n")
        self._torn = bool(rest)
        self._read_to += len(data) - len(rest)
        for line in whole.split(b"\n"):
            self._lines += 1
            entry = _parsed(line)
            if entry is not None:
                place, identity, digest = entry
                if identity == _GONE:
                    self._known.pop(place, None)
                else:
                    self._known[place] = (identity, digest)

    def _append(self, line: bytes) -> None:
        if self._fd is None:
            return
        with contextlib.suppress(OSError):
            if os.fstat(self._fd).st_nlink == 0:  # another process has replaced the file
                self._open()
        # Appended to an incomplete line, this line would be lost with it.
        data = b"\n" + line if self._torn else line
        try:
            self._torn = os.write(self._fd, data) != len(data)
        except OSError:
            self._torn = True

    def _compact(self) -> None:
        """Rewrite the index. Lines that other processes append to the old file meanwhile are lost."""
        lines = (_line(place, *entry) for place, entry in self._known.items())
        replace_file(self._path, b"".join(lines), self._part)
        self._open()


def _line(place: str, identity: FileIdentity, digest: str) -> bytes:
    words = f"{identity.size_bytes} {identity.mtime_ns} {identity.inode} {digest} {place}".encode()
    return b"%08x %s\n" % (zlib.crc32(words), words)


def _parsed(line: bytes) -> tuple[str, FileIdentity, str] | None:
    check, _, words = line.partition(b" ")
    if check != b"%08x" % zlib.crc32(words):
        return None
    try:
        size, mtime, inode, digest, place = words.decode().split(" ", 4)
        return place, FileIdentity(int(size), int(mtime), int(inode)), digest
    except ValueError:
        return None
