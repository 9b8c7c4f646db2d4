"""Remembers which files were hashed, so that opening a store with 100,000 of them re-reads none.

An append-only file of one line for each verified file, each with a check sum of its own. It is a hint that a
file with exactly this identity had this digest: a lost, torn or foreign line costs a re-hash, nothing else.
Several processes may append; each line is one write. Thread-safe.
"""

from __future__ import annotations

import os
import threading
import zlib
from pathlib import Path

from blobsync.local.disk import FileIdentity

_COMPACT_ABOVE = 1000
"""Superfluous lines, beside as many as there are entries."""


class VerifiedIndex:
    """Digests of files by their place and identity.

    Args:
        path: The index file; its folder exists.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._known: dict[str, tuple[FileIdentity, str]] = {}
        self._load()
        self._fd: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def digest(self, place: str, found: FileIdentity) -> str | None:
        """Digest of the file at `place`, if it is still the one that was hashed."""
        known = self._known.get(place)
        return known[1] if known is not None and known[0] == found else None

    def verified(self, place: str, found: FileIdentity, digest: str) -> None:
        """Note that the file was hashed or written by us, and is on the disk."""
        with self._lock:
            if self._fd is None:
                return
            self._known[place] = (found, digest)
            os.write(self._fd, _line(place, found, digest))

    def forget(self, place: str) -> None:
        """The file must be hashed before it counts again, also by other processes that start later."""
        with self._lock:
            if self._fd is not None and self._known.pop(place, None) is not None:
                os.write(self._fd, _line(place, FileIdentity(-1, -1, -1), "-"))

    def close(self) -> None:
        """Close the file. Nothing is noted from now on."""
        with self._lock:
            if self._fd is not None:
                os.close(self._fd)
                self._fd = None

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        lines = data.split(b"\n")
        for line in lines:
            entry = _parsed(line)
            if entry is not None:
                place, found, digest = entry
                self._known[place] = (found, digest)
        if lines[-1] or len(lines) > 2 * len(self._known) + _COMPACT_ABOVE:
            self._compact()

    def _compact(self) -> None:
        """Write the index anew. What other processes append to the old file meanwhile is only lost."""
        part = self._path.with_name(f"{self._path.name}.{os.getpid()}.{threading.get_ident()}.part")
        part.write_bytes(b"".join(_line(place, *entry) for place, entry in self._known.items()))
        part.replace(self._path)


def _line(place: str, found: FileIdentity, digest: str) -> bytes:
    words = f"{found.size_bytes} {found.mtime_ns} {found.inode} {digest} {place}".encode()
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
