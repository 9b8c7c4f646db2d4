"""Looks at every file of a tree: when its record does not vouch for it, and for the scrub."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from blobsync.errors import CorruptBlobError
from blobsync.local.disk import FileIdentity, identity, opened, regular
from blobsync.local.objects import ObjectFiles
from blobsync.local.tree_record import MODES, TreeRecord
from blobsync.local.verification import verify_object
from blobsync.release.manifest import Artifact, Manifest
from blobsync.storage.ports import GoingOn, go_on

_PYTHON_CACHE = "__pycache__"


def verified_record(objects: ObjectFiles, manifest: Manifest, folder: Path) -> TreeRecord | None:
    """Hash the tree; None: it has not each file as it should be, or something else."""
    wanted = {item.path: item for item in manifest.artifacts}
    folders: dict[str, tuple[int, int]] = {}
    made: dict[str, FileIdentity] = {}
    for path, found in _entries(folder, ""):
        item = wanted.get(path)
        if stat.S_ISDIR(found.st_mode):
            folders[path] = found.st_ino, found.st_mtime_ns
            continue
        if item is None or found.st_mode != MODES[item.executable]:
            return None
        if _fault(objects, item, folder / path, go_on) is not None:
            return None
        made[path] = identity(found)
    if made.keys() != wanted.keys():
        return None
    return TreeRecord.of(manifest, folders, made)


def damaged_files(
    objects: ObjectFiles, manifest: Manifest, folder: Path, going_on: GoingOn
) -> Iterator[tuple[Path, str]]:
    """Files of the tree with other bytes than they should have on the disk, and what is wrong with each."""
    for item in manifest.artifacts:
        path = folder / item.path
        if regular(path) is not None:
            reason = _fault(objects, item, path, going_on, from_disk=True)
            if reason is not None:
                yield path, reason


def _fault(
    objects: ObjectFiles, item: Artifact, path: Path, going_on: GoingOn, *, from_disk: bool = False
) -> str | None:
    """What is wrong with a file's bytes. A link to a blob is as good as that."""
    blob = item.blob
    if not blob.is_packed and objects.look(blob) == identity(path.lstat()) and objects.has(blob):
        return None
    try:
        with opened(path) as fd:
            if from_disk:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            verify_object(fd, blob, going_on=going_on)
    except FileNotFoundError:  # the tree was made anew meanwhile
        return None
    except CorruptBlobError as exc:
        return str(exc)
    except OSError as exc:
        return f"it cannot be read: {exc}"
    return None


def _entries(folder: Path, below: str) -> Iterator[tuple[str, os.stat_result]]:
    """All folders and files, with paths relative to the tree; but caches that a Python left."""
    if not below:
        yield "", folder.lstat()
    with os.scandir(folder) as entries:
        for entry in entries:
            found, path = entry.stat(follow_symlinks=False), below + entry.name
            if not stat.S_ISDIR(found.st_mode):
                yield path, found
            elif entry.name != _PYTHON_CACHE:
                yield path, found
                yield from _entries(Path(entry.path), f"{path}/")
