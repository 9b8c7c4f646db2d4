"""Releases as folders: read-only, each complete and flushed to the disk before it gets its name.

Small files are written from packs, or hard-linked from another tree that has the same verified file; large
ones are hard links to their blobs. Executable files are never links to blobs, since a link shares its mode.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from blobsync.bucket.ports import OnProgress
from blobsync.bucket.verification import verify_object
from blobsync.errors import BlobMissingError, CorruptBlobError, InvalidPackError
from blobsync.local.disk import (
    FOLDER,
    READ_ONLY,
    READ_ONLY_EXECUTABLE,
    SEALED_FOLDER,
    FileIdentity,
    FileReader,
    fsync_folder,
    identity,
    link,
    locked,
    opened,
    regular,
    remove_tree,
    replace_file,
    sync_file_system,
    write_new,
    write_new_large,
)
from blobsync.local.objects import ObjectFiles
from blobsync.local.reading import packed, pieces
from blobsync.local.store_context import StoreContext
from blobsync.local.tree_check import MODES, TreeFolder, TreeRecord, damaged_files, verified_record
from blobsync.release.layout import Layout, Pack
from blobsync.release.manifest import Artifact, Manifest

_TRIES = 3
_DONORS = 4
"""Number of other trees that are searched for files to link to."""
_FSYNC_UP_TO = 64
"""Up to this number, files and folders are flushed one by one; for more, one syncfs is cheaper."""
_BLOCK_BYTES = 4096


class Trees:
    """The trees of one store. Thread-safe; other processes may use them at the same time."""

    def __init__(self, base: StoreContext, objects: ObjectFiles) -> None:
        self._base = base
        self._objects = objects

    def path(self, digest: str) -> Path:
        """The path of a release's tree, which need not exist."""
        return self._base.root / "trees" / digest

    def materialise(self, manifest: Manifest, layout: Layout) -> Path:
        """Build the tree of a complete release, unless an intact tree exists. OSError passes through.

        BlobMissingError if a pack or large blob was removed since it was checked, or damaged: then it is in
        quarantine.
        """
        final = self.path(manifest.digest)
        for _ in range(_TRIES):
            judged = _inode(final)
            if judged is not None and self._intact(manifest, final):
                return final
            part = self._base.session.new_path()
            try:
                record = self._build(manifest, layout, part)
                if self._place(part, final, judged):
                    self._remember(manifest.digest, record)
                    return final
            finally:
                remove_tree(part)
        raise BlobMissingError(
            f"the tree of {manifest.ref} changes while it is made; find out which program writes to {final}"
        )

    def scrub(self, manifest: Manifest, on_progress: OnProgress) -> None:
        """Hash those files of the tree that are not links to blobs, from the disk.

        A damaged file goes to quarantine. The tree lacks it until `materialise` makes the tree again.
        """
        folder = self.path(manifest.digest)
        if _inode(folder) is not None:
            for path, reason in damaged_files(self._objects, manifest, folder, on_progress):
                path.parent.chmod(FOLDER)
                try:
                    self._base.quarantine(path, reason)
                finally:
                    path.parent.chmod(SEALED_FOLDER)

    def _intact(self, manifest: Manifest, folder: Path) -> bool:
        """True if the tree has exactly its verified files: by its record, or by hashing it."""
        record = self._record(manifest.digest)
        if record is not None and record.is_of(manifest) and record.still_holds(folder, manifest):
            return True
        with contextlib.suppress(FileNotFoundError):  # another process replaces the tree
            record = verified_record(self._objects, manifest, folder)
            if record is not None:
                self._remember(manifest.digest, record)
                return True
        return False

    def _build(self, manifest: Manifest, layout: Layout, part: Path) -> TreeRecord:
        try:
            return _Build(self._base, self._objects, manifest, part).make(
                self._donors(manifest), layout.packs
            )
        except (CorruptBlobError, InvalidPackError) as exc:
            raise BlobMissingError(f"{manifest.ref} changed while it was materialised: {exc}") from exc

    def _donors(self, manifest: Manifest) -> Iterator[tuple[Path, TreeRecord]]:
        """Other trees with their records: those of the same release name first, each newest first."""
        same = {path.stem for path in (self._base.root / "releases" / manifest.name).glob("*.json")}
        donors: list[tuple[bool, int, str]] = []
        for path in (self._base.root / "trees").glob("*.files"):
            with contextlib.suppress(FileNotFoundError):  # it has just been collected
                donors.append((path.stem in same, path.stat().st_mtime_ns, path.stem))
        names = (digest for _, _, digest in sorted(donors, reverse=True))
        for digest in [name for name in names if name != manifest.digest][:_DONORS]:
            record = self._record(digest)
            if record is not None:
                yield self.path(digest), record

    def _place(self, part: Path, final: Path, judged: int | None) -> bool:
        """Give a tree its name, in place of the damaged one with inode `judged`. False: the inode differs."""
        aside = self._base.session.new_path()
        with locked(self._base.lock_file):
            if _inode(final) != judged:
                return False
            if judged is not None:
                final.chmod(FOLDER)
                final.rename(aside)
            self._base.step("tree-rename")
            part.rename(final)
            self._base.step("tree-fsync-folder")
            fsync_folder(final.parent)
            self._base.disk.wrote()
            # Only after the rename: only root can move a read-only folder.
            final.chmod(SEALED_FOLDER)
        remove_tree(aside)
        return True

    def _record_path(self, digest: str) -> Path:
        return self._base.root / "trees" / f"{digest}.files"

    def _record(self, digest: str) -> TreeRecord | None:
        try:
            return TreeRecord.parse(self._record_path(digest).read_bytes())
        except OSError:
            return None

    def _remember(self, digest: str, record: TreeRecord) -> None:
        """Write the record without flushing it: if it is lost, the tree is hashed."""
        self._base.step("tree-record")
        with contextlib.suppress(OSError):
            replace_file(self._record_path(digest), record.encode(), self._base.session.new_path())


class _Build:
    """One attempt to make a tree, in a folder of this session alone. `folder` does not exist yet."""

    def __init__(self, base: StoreContext, objects: ObjectFiles, manifest: Manifest, folder: Path) -> None:
        self._base, self._objects, self._manifest = base, objects, manifest
        self._folder, self._top = folder, f"{folder}/"
        self._folders = _folders(item.path for item in manifest.artifacts)
        self._fd = -1
        self._made: dict[str, FileIdentity] = {}
        self._written: list[str] = []
        self._todo: dict[str, list[Artifact]] = {}
        """Small files by SHA-256."""
        for item in manifest.artifacts:
            if item.blob.is_packed:
                self._todo.setdefault(item.sha256, []).append(item)

    def make(self, donors: Iterable[tuple[Path, TreeRecord]], packs: Iterable[Pack]) -> TreeRecord:
        """Make all folders and files read-only, except the top folder, and flush them to the disk.

        OSError passes through; then the caller removes the folder. BlobMissingError if a file is in no pack;
        CorruptBlobError if a pack or large blob was damaged since it was verified. `donors` are other trees,
        which may have the same files.
        """
        self._base.step("tree-make")
        self._folder.mkdir(mode=FOLDER)
        # Opened before anything is written, so that `sync_file_system` fails if any write was lost.
        with opened(self._folder) as self._fd:
            for folder in self._folders:
                Path(self._top + folder).mkdir(mode=FOLDER)
            if self._todo:
                for tree, record in donors:
                    with contextlib.suppress(FileNotFoundError):  # it has just been collected
                        self._link_from(tree, record)
                    if not self._todo:
                        break
            self._add_blobs()
            self._add_packed(packs)
            for folder in reversed(self._folders):
                Path(self._top + folder).chmod(SEALED_FOLDER)
            self._base.step("tree-sync")
            self._sync()
            folders = tuple(_recorded(self._top, path) for path in ["", *self._folders])
            return TreeRecord.of(self._manifest, folders, self._made)

    def _link_from(self, tree: Path, record: TreeRecord) -> None:
        """Link small files of another tree, if they are still the files that were verified there."""
        with opened(tree) as other:
            for file in record.files:
                items = self._todo.get(file.sha256)
                if items:
                    verified = FileIdentity(items[0].size_bytes, file.mtime_ns, file.inode)
                    self._link_all(file.path, other, items, verified)
        self._todo = {digest: items for digest, items in self._todo.items() if items}

    def _link_all(self, path: str, other: int, items: list[Artifact], verified: FileIdentity) -> None:
        """Link missing files with the same content. Each file that was linked is removed from the list."""
        for item in list(items):
            linked = link(path, other, item.path, self._fd)
            if linked is None:
                return
            if identity(linked) != verified or linked.st_mode != MODES[item.executable]:
                os.unlink(item.path, dir_fd=self._fd)
                continue
            self._made[item.path] = verified
            items.remove(item)

    def _add_blobs(self) -> None:
        """Link large blobs; copy those that are executable."""
        for item in self._manifest.artifacts:
            if not item.blob.is_packed:
                self._base.step("tree-file")
                self._made[item.path] = self._add_blob(item)

    def _add_blob(self, item: Artifact) -> FileIdentity:
        source, target = self._objects.path(item.blob), Path(self._top + item.path)
        if not item.executable and regular(source) is not None:
            linked = link(str(source), None, item.path, self._fd)
            if linked is not None:
                return identity(linked)
        mode = READ_ONLY_EXECUTABLE if item.executable else READ_ONLY
        made = write_new_large(target, pieces(self._objects, item.blob), mode)
        self._written.append(item.path)
        try:
            with opened(target) as fd:
                verify_object(FileReader(fd), os.fstat(fd).st_size, item.blob)
        except CorruptBlobError:
            self._objects.check(item.blob)  # a damaged one goes to quarantine
            raise
        return made

    def _add_packed(self, packs: Iterable[Pack]) -> None:
        self._base.disk.need_room(
            sum(-(-items[0].size_bytes // _BLOCK_BYTES) * _BLOCK_BYTES for items in self._todo.values()),
            f"materialising {self._manifest.ref}",
        )
        for digest, data in packed(self._objects, packs, set(self._todo)):
            for item in self._todo.pop(digest):
                self._base.step("tree-file")
                self._written.append(item.path)
                mode = READ_ONLY_EXECUTABLE if item.executable else READ_ONLY
                self._made[item.path] = write_new(self._fd, item.path, data, mode)
        if self._todo:
            raise BlobMissingError(f"{self._manifest.ref} lacks {next(iter(self._todo))} here; sync it first")

    def _sync(self) -> None:
        many = len(self._written) + len(self._folders) > _FSYNC_UP_TO
        if many and sync_file_system(self._fd):
            return
        for path in self._written:
            with opened(Path(self._top + path)) as fd:
                os.fsync(fd)
        for path in reversed(["", *self._folders]):
            fsync_folder(Path(self._top + path))


def _inode(folder: Path) -> int | None:
    try:
        return folder.lstat().st_ino
    except FileNotFoundError:
        return None


def _folders(paths: Iterable[str]) -> list[str]:
    """All folders of these files, each after its parent."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return sorted(folders)


def _recorded(top: str, folder: str) -> TreeFolder:
    stat = os.lstat(top + folder)
    return TreeFolder(folder, stat.st_ino, stat.st_mtime_ns)
