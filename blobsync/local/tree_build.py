"""Makes one tree in a folder of this session alone."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from blobsync.bucket.verification import verify_object
from blobsync.errors import BlobMissingError
from blobsync.local.disk import (
    FOLDER,
    READ_ONLY,
    READ_ONLY_EXECUTABLE,
    SEALED_FOLDER,
    FileIdentity,
    FileReader,
    fsync_folder,
    identity,
    opened,
    regular,
    sync_file_system,
)
from blobsync.local.objects import ObjectFiles
from blobsync.local.reading import packed
from blobsync.local.store_context import StoreContext
from blobsync.local.tree_check import MODES, TreeFolder, TreeRecord
from blobsync.release.layout import Pack
from blobsync.release.manifest import Artifact, Manifest

_FSYNC_UP_TO = 64
"""Up to this many files and folders are flushed one by one; for more, one syncfs is cheaper."""
_BLOCK_BYTES = 4096


class TreeBuild:
    """One attempt. OSError passes through; the caller removes the folder then.

    Args:
        base: The store.
        objects: Its packs and blobs.
        manifest: What to make.
        folder: Where; not there yet.
    """

    def __init__(self, base: StoreContext, objects: ObjectFiles, manifest: Manifest, folder: Path) -> None:
        self._base = base
        self._objects = objects
        self._manifest = manifest
        self._folder = folder
        self._top = f"{folder}/"
        self._folders = _folders(item.path for item in manifest.artifacts)
        self._fd = -1
        self._made: dict[str, FileIdentity] = {}
        self._written: list[str] = []
        self._todo: dict[str, list[Artifact]] = {}
        """Small files by SHA-256."""
        for item in manifest.artifacts:
            if item.blob.is_packed:
                self._todo.setdefault(item.sha256, []).append(item)

    @property
    def needs_packs(self) -> bool:
        """True if small files are still missing."""
        return bool(self._todo)

    def begin(self) -> None:
        """Make the folders. Call `close` afterwards, also after an error."""
        self._base.step("tree-make")
        self._folder.mkdir(mode=FOLDER)
        # Opened before anything is written, so that the sync tells of every write that was lost.
        self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for folder in self._folders:
            Path(self._top + folder).mkdir(mode=FOLDER)

    def close(self) -> None:
        """Close the folder."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def link_from(self, tree: Path, record: TreeRecord) -> None:
        """Link small files that another tree has, if they are the ones that were verified there."""
        with opened(tree) as other:
            for file in record.files:
                items = self._todo.get(file.sha256)
                if items:
                    verified = FileIdentity(items[0].size_bytes, file.mtime_ns, file.inode)
                    self._link_all(file.path, other, items, verified)
        self._todo = {digest: items for digest, items in self._todo.items() if items}

    def add_blobs(self) -> None:
        """Link large blobs, or copy those that are executable."""
        for item in self._manifest.artifacts:
            if not item.blob.is_packed:
                self._base.step("tree-file")
                self._made[item.path] = self._add_blob(item)

    def add_packed(self, packs: Iterable[Pack]) -> None:
        """Write the files that are still missing, from packs.

        Raises:
            BlobMissingError: none of them has it.
            CorruptPackError: one was damaged since it was verified.
        """
        self._base.disk.need_room(
            sum(-(-items[0].size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES for items in self._todo.values()),
            f"materialising {self._manifest.ref}",
        )
        for digest, data in packed(self._objects, packs, set(self._todo)):
            for item in self._todo.pop(digest):
                self._write(item, data)
        if self._todo:
            raise BlobMissingError(f"{self._manifest.ref} lacks {next(iter(self._todo))} here; sync it first")

    def finish(self) -> TreeRecord:
        """Make all but the top folder read-only, and flush everything to the disk."""
        for folder in reversed(self._folders):
            Path(self._top + folder).chmod(SEALED_FOLDER)
        self._base.step("tree-sync")
        self._sync()
        folders = tuple(_recorded(self._top, path) for path in ["", *self._folders])
        return TreeRecord.of(self._manifest, folders, self._made)

    def _link_all(self, path: str, other: int, items: list[Artifact], verified: FileIdentity) -> None:
        """Link equal files that are still missing; those made are removed from the list."""
        for item in list(items):
            found = _link(path, other, item.path, self._fd)
            if found is None:
                return
            if identity(found) != verified or found.st_mode != MODES[item.executable]:
                os.unlink(item.path, dir_fd=self._fd)
                continue
            self._made[item.path] = verified
            items.remove(item)

    def _write(self, item: Artifact, data: memoryview) -> None:
        self._base.step("tree-file")
        self._written.append(item.path)
        mode = READ_ONLY_EXECUTABLE if item.executable else READ_ONLY
        self._made[item.path] = _write_new(self._fd, item.path, data, mode)

    def _add_blob(self, item: Artifact) -> FileIdentity:
        source, target = self._objects.path(item.blob), self._top + item.path
        if not item.executable and regular(source) is not None:
            found = _link(str(source), None, item.path, self._fd)
            if found is not None:
                return identity(found)
        with opened(source) as fd:
            mode = READ_ONLY_EXECUTABLE if item.executable else READ_ONLY
            made = _copy_blob(fd, target, mode)
        self._written.append(item.path)
        with opened(Path(target)) as fd:
            verify_object(FileReader(fd), os.fstat(fd).st_size, item.blob)
        return made

    def _sync(self) -> None:
        many = len(self._written) + len(self._folders) > _FSYNC_UP_TO
        if many and sync_file_system(self._fd):
            return
        for path in self._written:
            with opened(Path(self._top + path)) as fd:
                os.fsync(fd)
        for path in reversed(["", *self._folders]):
            fsync_folder(Path(self._top + path))


def _folders(paths: Iterable[str]) -> list[str]:
    """All folders of these files, each after the one it is in."""
    found: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition("/")[0]
    return sorted(found)


def _recorded(top: str, folder: str) -> TreeFolder:
    found = os.lstat(top + folder)
    return TreeFolder(folder, found.st_ino, found.st_mtime_ns)


def _write_new(folder: int, path: str, data: memoryview, mode: int) -> FileIdentity:
    """Write a small file that is not there yet, below an open folder. Not durable by itself."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, mode, dir_fd=folder)
    try:
        left = data
        while left:
            left = left[os.write(fd, left) :]
        found = os.fstat(fd)
        if found.st_mode & 0o777 != mode:  # a umask
            os.fchmod(fd, mode)
        return identity(found)
    finally:
        os.close(fd)


def _link(source: str, source_folder: int | None, path: str, folder: int) -> os.stat_result | None:
    """Hard-link a file to a path below an open folder; None: it is gone, or cannot have one more link."""
    try:
        os.link(source, path, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return os.stat(path, dir_fd=folder, follow_symlinks=False)


def _copy_blob(fd: int, target: str, mode: int) -> FileIdentity:
    """Copy a large file. Not durable by itself."""
    with contextlib.closing(os.fdopen(os.dup(fd), "rb")) as source:
        new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(new, "wb") as file:
            source.seek(0)
            shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fchmod(new, mode)
            return identity(os.fstat(new))
