"""Releases as folders: read-only, sealed, each complete and on the disk before it gets its name.

Small files are written from packs, or hard-linked from another tree that has the same verified file; large
ones are hard links to their blobs. Executable files are never links to blobs, since a link shares its mode.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from blobsync.bucket.ports import OnProgress
from blobsync.errors import BlobMissingError, CorruptPackError, InvalidPackError
from blobsync.local.disk import FOLDER, SEALED_FOLDER, fsync_folder, locked, remove_tree
from blobsync.local.objects import ObjectFiles
from blobsync.local.store_context import StoreContext
from blobsync.local.tree_build import TreeBuild
from blobsync.local.tree_check import TreeRecord, damaged_files, verified_record
from blobsync.release.layout import Layout
from blobsync.release.manifest import Manifest

_TRIES = 3
_DONORS = 4
"""How many other trees are searched for files to link to."""


class Trees:
    """The trees of one store. Thread-safe; safe to race with other processes.

    Args:
        base: The store.
        objects: Its packs and blobs.
    """

    def __init__(self, base: StoreContext, objects: ObjectFiles) -> None:
        self._base = base
        self._objects = objects

    def path(self, digest: str) -> Path:
        """Where the tree of a release is, or would be."""
        return self._base.root / "trees" / digest

    def materialise(self, manifest: Manifest, layout: Layout) -> Path:
        """Build the tree of a complete release, unless an intact one is there. OSError passes through.

        Raises:
            BlobMissingError: a pack was damaged or removed since it was looked at.
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
            f"the tree of {manifest.ref} changes while it is made; who else writes to {final}?"
        )

    def scrub(self, manifest: Manifest, on_progress: OnProgress) -> None:
        """Hash the files of the tree that are no links to blobs, from the disk.

        A damaged one goes to quarantine. Then the tree is not intact, and is made anew when it is asked for.
        """
        folder = self.path(manifest.digest)
        if _inode(folder) is not None:
            for path, reason in damaged_files(self._objects, manifest, folder, on_progress):
                path.parent.chmod(FOLDER)
                self._base.quarantine(path, reason)
                path.parent.chmod(SEALED_FOLDER)

    def _intact(self, manifest: Manifest, folder: Path) -> bool:
        """True if the tree has each file, verified, and nothing else: by its record, or by hashing it."""
        record = self._record(manifest.digest)
        if record is not None and record.is_of(manifest) and record.still_holds(folder, manifest):
            return True
        hashed = verified_record(self._objects, manifest, folder)
        if hashed is not None:
            self._remember(manifest.digest, hashed)
        return hashed is not None

    def _build(self, manifest: Manifest, layout: Layout, part: Path) -> TreeRecord:
        build = TreeBuild(self._base, self._objects, manifest, part)
        try:
            build.begin()
            for digest in self._donors(manifest):
                if not build.needs_packs:
                    break
                record = self._record(digest)
                if record is not None:
                    with contextlib.suppress(FileNotFoundError):  # collected just now
                        build.link_from(self.path(digest), record)
            build.add_blobs()
            build.add_packed(layout.packs)
            return build.finish()
        except (CorruptPackError, InvalidPackError, FileNotFoundError) as exc:
            for pack in layout.packs:
                self._objects.check(pack)  # a damaged one goes to quarantine
            raise BlobMissingError(f"{manifest.ref} changed while it was materialised: {exc}") from exc
        finally:
            build.close()

    def _donors(self, manifest: Manifest) -> list[str]:
        """Other trees, first those of the same name, and of these the newest."""
        same = {path.stem for path in (self._base.root / "releases" / manifest.name).glob("*.json")}
        found = [
            (entry.name.removesuffix(".files") in same, entry.stat().st_mtime_ns, entry.name)
            for entry in os.scandir(self._base.root / "trees")
            if entry.name.endswith(".files")
        ]
        names = (name.removesuffix(".files") for _, _, name in sorted(found, reverse=True))
        return [name for name in names if name != manifest.digest][:_DONORS]

    def _place(self, part: Path, final: Path, judged: int | None) -> bool:
        """Give a tree its name, in place of the one that was `judged` damaged; False: it is another now."""
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
            # Only now: a sealed folder cannot be moved by anybody but root.
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
        """Write the record, not durably: without it, the tree is hashed."""
        self._base.step("tree-record")
        part = self._base.session.new_path()
        with contextlib.suppress(OSError):
            part.write_bytes(record.encode())
            part.replace(self._record_path(digest))


def _inode(folder: Path) -> int | None:
    try:
        return folder.lstat().st_ino
    except FileNotFoundError:
        return None
