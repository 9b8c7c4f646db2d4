r"""What a tree looked like when all its files were verified, so that a later look need not read them.

A file beside the tree. It is a hint like the index: lost, damaged or foreign, the tree is hashed anew.

    b"BSTREE1\n"
    BLAKE3 of the rest
    files, folders        how many; 4 bytes each, little-endian as all that follows
    inodes                of the folders, then of the files; 8 bytes each
    mtimes in ns          likewise
    SHA-256               of the files; 32 bytes each
    paths                 of the folders, then of the files, separated by newlines, relative to the tree

Files are in the order of the manifest, which knows their sizes and modes.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from blobsync.local.disk import READ_ONLY, READ_ONLY_EXECUTABLE, FileIdentity
from blobsync.release.manifest import Manifest

_MAGIC = b"BSTREE1\n"
_COUNTS = struct.Struct("<II")
_HEAD_BYTES = len(_MAGIC) + 32
_DIGEST_BYTES = 32

MODES = {False: stat.S_IFREG | READ_ONLY, True: stat.S_IFREG | READ_ONLY_EXECUTABLE}
"""Of files in trees, by whether they are executable."""


@dataclass(frozen=True, slots=True)
class TreeRecord:
    """Identities of a tree's folders and files.

    Attributes:
        folders: How many; the tree itself, "", is the first.
        paths: Of the folders, then of the files, separated by newlines.
        inodes: Likewise.
        mtimes_ns: Likewise.
        digests: SHA-256 of the files, 32 bytes each.
    """

    folders: int
    paths: bytes
    inodes: array[int]
    mtimes_ns: array[int]
    digests: bytes

    @classmethod
    def of(
        cls, manifest: Manifest, folders: Mapping[str, tuple[int, int]], files: Mapping[str, FileIdentity]
    ) -> TreeRecord:
        """Record a tree whose files were verified.

        Args:
            manifest: What it is a tree of.
            folders: Shape `{path: (inode, mtime_ns)}`, the tree itself, "", first.
            files: Shape `{path: identity}`.
        """
        found = [files[item.path] for item in manifest.artifacts]
        return cls(
            len(folders),
            "\n".join([*folders, *(item.path for item in manifest.artifacts)]).encode(),
            array("Q", [*(inode for inode, _ in folders.values()), *(item.inode for item in found)]),
            array("q", [*(mtime for _, mtime in folders.values()), *(item.mtime_ns for item in found)]),
            bytes.fromhex("".join([item.sha256 for item in manifest.artifacts])),
        )

    def encode(self) -> bytes:
        """As it is stored."""
        counts = _COUNTS.pack(len(self.inodes) - self.folders, self.folders)
        body = b"".join([counts, _stored(self.inodes), _stored(self.mtimes_ns), self.digests, self.paths])
        return _MAGIC + blake3(body).digest() + body

    @classmethod
    def parse(cls, data: bytes) -> TreeRecord | None:
        """Read a record; None: it is not one, or damaged."""
        body = data[_HEAD_BYTES:]
        if data[:_HEAD_BYTES] != _MAGIC + blake3(body).digest() or len(body) < _COUNTS.size:
            return None
        files, folders = _COUNTS.unpack_from(body)
        column = 8 * (files + folders)
        mtimes_at, digests_at = _COUNTS.size + column, _COUNTS.size + 2 * column
        paths_at = digests_at + _DIGEST_BYTES * files
        if len(body) < paths_at:
            return None
        inodes, mtimes = array("Q", body[_COUNTS.size : mtimes_at]), array("q", body[mtimes_at:digests_at])
        _swap(inodes)
        _swap(mtimes)
        return cls(folders, body[paths_at:], inodes, mtimes, body[digests_at:paths_at])

    def is_of(self, manifest: Manifest) -> bool:
        """Whether these are the files of that release."""
        return (
            self.digests.hex() == "".join([item.sha256 for item in manifest.artifacts])
            and len(self.inodes) == self.folders + len(manifest.artifacts)
            and self.paths.split(b"\n", self.folders)[-1]
            == "\n".join([item.path for item in manifest.artifacts]).encode()
        )

    def files(self) -> Iterator[tuple[bytes, str, int, int]]:
        """SHA-256, path, inode and mtime of each file."""
        paths = self.paths.decode().split("\n")[self.folders :]
        digests = (self.digests[at : at + _DIGEST_BYTES] for at in range(0, len(self.digests), _DIGEST_BYTES))
        return zip(digests, paths, self.inodes[self.folders :], self.mtimes_ns[self.folders :], strict=True)

    def still_holds(self, folder: Path, manifest: Manifest) -> bool:
        """Whether the tree is as it was: nothing added, removed, replaced or written to. Reads no file.

        A name that is added or removed changes its folder's time, so folders are not listed.
        """
        try:
            top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return self._folders_hold(top) and all(self._files_hold(top, manifest))
        except OSError:
            return False
        finally:
            os.close(top)

    def _folders_hold(self, top: int) -> bool:
        paths = self.paths.decode().split("\n", self.folders)[: self.folders]
        for path, inode, mtime_ns in zip(paths, self.inodes, self.mtimes_ns, strict=False):
            found = os.stat(path or ".", dir_fd=top, follow_symlinks=False)
            if not stat.S_ISDIR(found.st_mode) or (found.st_ino, found.st_mtime_ns) != (inode, mtime_ns):
                return False
        return True

    def _files_hold(self, top: int, manifest: Manifest) -> Iterator[bool]:
        look, (plain, executable) = os.stat, MODES.values()
        known = zip(
            manifest.artifacts, self.inodes[self.folders :], self.mtimes_ns[self.folders :], strict=True
        )
        for item, inode, mtime_ns in known:
            # Relative to the tree, since to follow the path to it takes longer than the look.
            found = look(item.path, dir_fd=top, follow_symlinks=False)
            yield (
                found.st_ino == inode
                and found.st_mtime_ns == mtime_ns
                and found.st_size == item.size_bytes
                and found.st_mode == (executable if item.executable else plain)
            )


def _stored(column: array[int]) -> bytes:
    copy = column[:]
    _swap(copy)
    return copy.tobytes()


def _swap(column: array[int]) -> None:
    if sys.byteorder == "big":
        column.byteswap()
