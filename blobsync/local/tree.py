"""A release as a folder: hard links to verified blobs, sealed against writing.

Executable files are copies, since a link shares its mode with the blob, which may be a plain file of another
release.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from blobsync.errors import BlobMissingError
from blobsync.local.disk import (
    FOLDER,
    READ_ONLY,
    READ_ONLY_EXECUTABLE,
    SEALED_FOLDER,
    fsync_folder,
    regular,
    remove_tree,
)
from blobsync.release.manifest import Artifact, Manifest

if TYPE_CHECKING:
    from blobsync.local.legacy import LegacyStore

_PYTHON_CACHE = "__pycache__"
_TRIES = 3


def path_of(store: LegacyStore, digest: str) -> Path:
    """Where the tree of a release is, or would be."""
    return store.root / "trees" / digest


def materialise(store: LegacyStore, manifest: Manifest) -> Path:
    """Build the tree unless a good one is there. All blobs are here. OSError passes through."""
    final = path_of(store, manifest.digest)
    for _ in range(_TRIES):
        if _intact(store, manifest, final):
            return final
        _put_away(store, final)
        part = store._base.session.new_path()
        try:
            _build(store, manifest, part)
            # A folder that is not empty is not replaced: another process was faster, and its tree is looked
            # at.
            with contextlib.suppress(FileExistsError):
                _rename(part, final)
        finally:
            remove_tree(part)
    if _intact(store, manifest, final):
        return final
    raise BlobMissingError(
        f"the tree of {manifest.ref} changes while it is made; who else writes to {final}?"
    )


def forget_damaged_copies(store: LegacyStore, manifest: Manifest, going_on: Callable[[], None]) -> None:
    """Hash what is in the tree but is no link. A damaged copy goes, and the tree is made anew later."""
    folder = path_of(store, manifest.digest)
    for item in manifest.artifacts:
        path = folder / item.path
        found = regular(path)
        if found is not None and not _is_link(store, item, found):
            store.check_file(path, item.sha256, again=True, going_on=going_on)


def _rename(part: Path, final: Path) -> None:
    try:
        part.rename(final)
    except OSError as exc:
        if final.is_dir():
            raise FileExistsError(str(final)) from exc
        raise
    # Only now: a sealed folder cannot be moved by anybody but root.
    final.chmod(SEALED_FOLDER)
    fsync_folder(final.parent)


def _put_away(store: LegacyStore, final: Path) -> None:
    """Move a damaged tree aside at once, and remove it then."""
    aside = store._base.session.new_path()
    with contextlib.suppress(FileNotFoundError):
        final.chmod(FOLDER)
        final.rename(aside)
    remove_tree(aside)


def _build(store: LegacyStore, manifest: Manifest, part: Path) -> None:
    part.mkdir(mode=FOLDER)
    folders = {parent for item in manifest.artifacts for parent in Path(item.path).parents} - {Path()}
    for folder in sorted(folders):
        (part / folder).mkdir(mode=FOLDER)
    for item in manifest.artifacts:
        _put(store, item, part / item.path)
    for folder in sorted(folders, reverse=True):
        (part / folder).chmod(SEALED_FOLDER)


def _put(store: LegacyStore, item: Artifact, target: Path) -> None:
    blob = store.blob_path(item.sha256)
    if not item.executable:
        try:
            os.link(blob, target, follow_symlinks=False)
        except FileNotFoundError:
            raise
        except OSError:  # too many links, or a file system without them: a copy does
            pass
        else:
            return
    shutil.copyfile(blob, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())
    target.chmod(READ_ONLY_EXECUTABLE if item.executable else READ_ONLY)


def _intact(store: LegacyStore, manifest: Manifest, folder: Path) -> bool:
    """Whether the tree has each file, verified, and nothing else."""
    if not folder.is_dir() or folder.is_symlink():
        return False
    wanted = {item.path: item for item in manifest.artifacts}
    seen = 0
    for path, found in _files(folder, folder):
        item = wanted.get(path)
        if item is None or not stat.S_ISREG(found.st_mode):
            return False
        if bool(found.st_mode & stat.S_IXUSR) != item.executable:
            return False
        if not _is_link(store, item, found) and not store.check_file(folder / path, item.sha256):
            return False
        seen += 1
    return seen == len(wanted)


def _is_link(store: LegacyStore, item: Artifact, found: os.stat_result) -> bool:
    blob = regular(store.blob_path(item.sha256))
    return blob is not None and (blob.st_dev, blob.st_ino) == (found.st_dev, found.st_ino)


def _files(folder: Path, top: Path) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.name != _PYTHON_CACHE:  # written by a Python that runs as root; harmless
                    yield from _files(Path(entry.path), top)
            else:
                yield Path(entry.path).relative_to(top).as_posix(), entry.stat(follow_symlinks=False)
