r"""What a tree looked like when all its files were verified, so that a later look need not read them.

A file beside the tree. It is a hint like the index: lost, damaged or foreign, the tree is hashed anew.

    b"BSTREE1\n"
    BLAKE3 of the rest
    files, folders        how many
    for each folder       inode, mtime in ns
    for each file         SHA-256, inode, size, mtime in ns
    paths                 of the folders, then of the files, separated by newlines, relative to the tree
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from blobsync.local.disk import READ_ONLY, READ_ONLY_EXECUTABLE, FileIdentity
from blobsync.release.manifest import Manifest

_MAGIC = b"BSTREE1\n"
_COUNTS = struct.Struct("<II")
_FOLDER = struct.Struct("<Qq")
_FILE = struct.Struct("<32sQQq")
_HEAD_BYTES = len(_MAGIC) + 32

MODES = {False: stat.S_IFREG | READ_ONLY, True: stat.S_IFREG | READ_ONLY_EXECUTABLE}
"""Of files in trees, by whether they are executable."""


@dataclass(frozen=True, slots=True)
class TreeRecord:
    """Identities of a tree's folders and files. Files are in the order of the manifest.

    Attributes:
        folders: Shape `{path: (inode, mtime_ns)}`; the tree itself is "".
        paths: Of the files.
        digests: Their SHA-256, 32 bytes each.
        identities: What they were when they were verified.
    """

    folders: dict[str, tuple[int, int]]
    paths: list[str]
    digests: list[bytes]
    identities: list[FileIdentity]

    def encode(self) -> bytes:
        """As it is stored."""
        body = b"".join(
            [
                _COUNTS.pack(len(self.paths), len(self.folders)),
                *[_FOLDER.pack(*found) for found in self.folders.values()],
                *[
                    _FILE.pack(digest, found.inode, found.size_bytes, found.mtime_ns)
                    for digest, found in zip(self.digests, self.identities, strict=True)
                ],
                "\n".join([*self.folders, *self.paths]).encode(),
            ]
        )
        return _MAGIC + blake3(body).digest() + body

    @classmethod
    def parse(cls, data: bytes) -> TreeRecord | None:
        """Read a record; None: it is not one, or damaged."""
        body = memoryview(data)[_HEAD_BYTES:]
        if data[:_HEAD_BYTES] != _MAGIC + blake3(body).digest() or len(body) < _COUNTS.size:
            return None
        files, folders = _COUNTS.unpack_from(body)
        files_at = _COUNTS.size + folders * _FOLDER.size
        paths_at = files_at + files * _FILE.size
        paths = bytes(body[paths_at:]).decode().split("\n")
        if len(paths) != folders + files:
            return None
        rows = list(_FILE.iter_unpack(body[files_at:paths_at]))
        return cls(
            dict(zip(paths[:folders], _FOLDER.iter_unpack(body[_COUNTS.size : files_at]), strict=True)),
            paths[folders:],
            [row[0] for row in rows],
            [FileIdentity(size, mtime, inode) for _, inode, size, mtime in rows],
        )

    def is_of(self, manifest: Manifest) -> bool:
        """Whether these are the files of that release."""
        items = manifest.artifacts
        return (
            self.paths == [item.path for item in items]
            and b"".join(self.digests).hex() == "".join([item.sha256 for item in items])
            and [found.size_bytes for found in self.identities] == [item.size_bytes for item in items]
        )

    def still_holds(self, folder: Path, manifest: Manifest) -> bool:
        """Whether the tree is as it was: nothing added, removed, replaced or written to. Reads no file.

        A name that is added or removed changes its folder's time, so folders are not listed.
        """
        top = f"{folder}/"
        for path, known in self.folders.items():
            try:
                found = os.lstat(top + path if path else folder)
            except OSError:
                return False
            if not stat.S_ISDIR(found.st_mode) or (found.st_ino, found.st_mtime_ns) != known:
                return False
        return all(self._matches(top, manifest))

    def _matches(self, top: str, manifest: Manifest) -> Iterator[bool]:
        lstat, modes = os.lstat, MODES
        for item, (size, mtime_ns, inode) in zip(manifest.artifacts, self.identities, strict=True):
            try:
                found = lstat(top + item.path)
            except OSError:
                yield False
                return
            yield (
                found.st_ino == inode
                and found.st_mtime_ns == mtime_ns
                and found.st_size == size
                and found.st_mode == modes[item.executable]
            )
