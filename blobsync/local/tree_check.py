r"""Checks that a tree is still the one that was verified: by its record, otherwise by hashing it.

The record is a file next to the tree. If it is lost, damaged, or of another tree, the tree is hashed again.

    b"BSTREE1\n"
    BLAKE3 of the rest
    files, folders        number of each; 4 bytes each, little-endian like all numbers
    inodes                of the folders, then of the files; 8 bytes each
    mtimes in ns          in the same order; 8 bytes each
    SHA-256               of the files; 32 bytes each
    paths                 of the folders, then of the files, separated by newlines, relative to the tree

Files are in the order of the manifest, which contains their sizes and modes.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from blake3 import blake3

from blobsync.bucket.ports import OnProgress, ignore_progress
from blobsync.bucket.verification import verify_object
from blobsync.errors import CorruptBlobError
from blobsync.local.disk import (
    READ_ONLY,
    READ_ONLY_EXECUTABLE,
    UNREADABLE,
    FileIdentity,
    FileReader,
    identity,
    opened,
    regular,
)
from blobsync.local.objects import ObjectFiles
from blobsync.release.manifest import Artifact, Manifest

_MAGIC = b"BSTREE1\n"
_COUNTS = struct.Struct("<II")
_HEAD_BYTES = len(_MAGIC) + 32
_DIGEST_BYTES = 32

MODES = {False: stat.S_IFREG | READ_ONLY, True: stat.S_IFREG | READ_ONLY_EXECUTABLE}
"""Modes of files in trees. Key: True for executable files."""


class TreeFolder(NamedTuple):
    """A folder of a tree. `path` is relative to the tree; that of the tree itself is empty."""

    path: str
    inode: int
    mtime_ns: int


class TreeFile(NamedTuple):
    """A verified file of a tree."""

    path: str
    inode: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True, slots=True)
class TreeRecord:
    """The folders and files of a tree at the moment when all its files were verified.

    The tree itself is the first folder; files are in the order of the manifest.
    """

    folders: tuple[TreeFolder, ...]
    files: tuple[TreeFile, ...]

    @classmethod
    def of(
        cls, manifest: Manifest, folders: tuple[TreeFolder, ...], files: Mapping[str, FileIdentity]
    ) -> TreeRecord:
        """Make the record of a tree whose files were verified. `files` has the identity of each by path."""
        pairs = ((item, files[item.path]) for item in manifest.artifacts)
        return cls(
            folders,
            tuple(TreeFile(item.path, file.inode, file.mtime_ns, item.sha256) for item, file in pairs),
        )

    def encode(self) -> bytes:
        """The record as it is stored."""
        entries: tuple[TreeFolder | TreeFile, ...] = (*self.folders, *self.files)
        body = b"".join(
            [
                _COUNTS.pack(len(self.files), len(self.folders)),
                struct.pack(f"<{len(entries)}Q", *(entry.inode for entry in entries)),
                struct.pack(f"<{len(entries)}q", *(entry.mtime_ns for entry in entries)),
                bytes.fromhex("".join([file.sha256 for file in self.files])),
                "\n".join([entry.path for entry in entries]).encode(),
            ]
        )
        return _MAGIC + blake3(body).digest() + body

    @classmethod
    def parse(cls, data: bytes) -> TreeRecord | None:
        """Read a record; None: it is no record, or damaged."""
        body = data[_HEAD_BYTES:]
        if data[:_HEAD_BYTES] != _MAGIC + blake3(body).digest() or len(body) < _COUNTS.size:
            return None
        files, folders = _COUNTS.unpack_from(body)
        mtimes_at = _COUNTS.size + 8 * (files + folders)
        digests_at = mtimes_at + 8 * (files + folders)
        paths_at = digests_at + _DIGEST_BYTES * files
        paths = body[paths_at:].decode(errors="replace").split("\n")
        if len(body) < paths_at or len(paths) != files + folders:
            return None
        inodes = struct.unpack_from(f"<{files + folders}Q", body, _COUNTS.size)
        mtimes = struct.unpack_from(f"<{files + folders}q", body, mtimes_at)
        digests = (body[at : at + _DIGEST_BYTES].hex() for at in range(digests_at, paths_at, _DIGEST_BYTES))
        rows = list(zip(paths, inodes, mtimes, strict=True))
        return cls(
            tuple(TreeFolder(*row) for row in rows[:folders]),
            tuple(TreeFile(*row, sha256) for row, sha256 in zip(rows[folders:], digests, strict=True)),
        )

    def is_of(self, manifest: Manifest) -> bool:
        """True if these are the files of that release."""
        return len(self.files) == len(manifest.artifacts) and all(
            file.path == item.path and file.sha256 == item.sha256
            for file, item in zip(self.files, manifest.artifacts, strict=True)
        )

    def still_holds(self, folder: Path, manifest: Manifest) -> bool:
        """True if no file of the tree was added, removed, replaced or written. Reads no file.

        Adding or removing a name changes the time of its folder, so folders are not listed.
        """
        try:
            top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            return self._folders_hold(top) and self._files_hold(top, manifest)
        except OSError:
            return False
        finally:
            os.close(top)

    def _folders_hold(self, top: int) -> bool:
        for path, inode, mtime_ns in self.folders:
            status = os.stat(path or ".", dir_fd=top, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode) or (status.st_ino, status.st_mtime_ns) != (inode, mtime_ns):
                return False
        return True

    def _files_hold(self, top: int, manifest: Manifest) -> bool:
        for file, item in zip(self.files, manifest.artifacts, strict=True):
            # Relative to the open folder: resolving the path to the tree takes longer than the stat itself.
            stat = os.stat(item.path, dir_fd=top, follow_symlinks=False)
            if (
                identity(stat) != (item.size_bytes, file.mtime_ns, file.inode)
                or stat.st_mode != MODES[item.executable]
            ):
                return False
        return True


def verified_record(objects: ObjectFiles, manifest: Manifest, folder: Path) -> TreeRecord | None:
    """Hash the tree and make its record. None: a file is missing or wrong, or there is an extra file.

    FileNotFoundError if another process replaces the tree.
    """
    wanted = {item.path: item for item in manifest.artifacts}
    folders: list[TreeFolder] = []
    made: dict[str, FileIdentity] = {}
    for path, status in _entries(folder, ""):
        item = wanted.get(path)
        if stat.S_ISDIR(status.st_mode):
            folders.append(TreeFolder(path, status.st_ino, status.st_mtime_ns))
            continue
        if item is None or status.st_mode != MODES[item.executable]:
            return None
        if _fault(objects, item, folder / path, ignore_progress) is not None:
            return None
        made[path] = identity(status)
    if made.keys() != wanted.keys():
        return None
    return TreeRecord.of(manifest, tuple(folders), made)


def damaged_files(
    objects: ObjectFiles, manifest: Manifest, folder: Path, on_progress: OnProgress
) -> Iterator[tuple[Path, str]]:
    """Files of the tree that have wrong bytes on the disk, with the reason for each."""
    for item in manifest.artifacts:
        path = folder / item.path
        if regular(path) is not None:
            reason = _fault(objects, item, path, on_progress, from_disk=True)
            if reason is not None:
                yield path, reason


def _fault(
    objects: ObjectFiles, item: Artifact, path: Path, on_progress: OnProgress, *, from_disk: bool = False
) -> str | None:
    """Why a file's bytes are wrong; None: they are right. A link to a verified blob is not read."""
    blob = item.blob
    if not blob.is_packed and objects.file_identity(blob) == identity(path.lstat()) and objects.has(blob):
        return None
    try:
        with opened(path) as fd:
            if from_disk:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            verify_object(FileReader(fd), os.fstat(fd).st_size, blob, on_progress=on_progress)
    except FileNotFoundError:  # another process has replaced the tree
        return None
    except CorruptBlobError as exc:
        return str(exc)
    except OSError as exc:
        if exc.errno not in UNREADABLE:  # such as too many open files
            raise
        return f"it cannot be read: {exc}"
    return None


def _entries(folder: Path, below: str) -> Iterator[tuple[str, os.stat_result]]:
    """All folders and files, with paths relative to the tree."""
    if not below:
        yield "", folder.lstat()
    with os.scandir(folder) as entries:
        for entry in entries:
            status, path = entry.stat(follow_symlinks=False), below + entry.name
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                yield from _entries(Path(entry.path), f"{path}/")
