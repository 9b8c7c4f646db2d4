"""What a release lacks here."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from blobsync.bucket.verification import read_table
from blobsync.errors import InvalidLayoutError, InvalidPackError
from blobsync.local.disk import FileReader, opened
from blobsync.local.objects import ObjectFiles
from blobsync.release.blob import PACKED_BYTES
from blobsync.release.layout import Layout, Pack
from blobsync.release.manifest import Artifact, Manifest
from blobsync.release.objects import StoredObject


@dataclass(frozen=True, slots=True)
class MissingObjects:
    """What of a release is not here, or not verified. False when nothing is missing.

    Attributes:
        objects: Packs and large blobs to fetch, in the order of the layout and the manifest.
        artifacts: Files that need them.
    """

    objects: tuple[StoredObject, ...] = ()
    artifacts: tuple[Artifact, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.objects or self.artifacts)


def missing_objects(objects: ObjectFiles, manifest: Manifest, layout: Layout) -> MissingObjects:
    """Compare a release with the verified packs and blobs. Reads the tables of its packs.

    Raises:
        InvalidLayoutError, InvalidManifestError: as of `blobsync.LocalStore.missing`.
        OSError: the disk does not say.
    """
    missing: list[StoredObject] = []
    here: set[tuple[str, int]] = set()
    for item in objects_of(manifest, layout):
        found = _contents(objects, item)
        if found is None:
            missing.append(item)
        else:
            here.update(found)
    artifacts = tuple(item for item in manifest.artifacts if (item.sha256, item.size_bytes) not in here)
    if not any(isinstance(item, Pack) for item in missing):
        for lost in artifacts:  # none, or an error at the first but for large ones
            if lost.size_bytes <= PACKED_BYTES:
                raise InvalidLayoutError(
                    f"no pack in the layout of {manifest.ref} has {lost.path} ({lost.sha256}, "
                    f"{lost.size_bytes} bytes), though all of them are here; publish the release again"
                )
    return MissingObjects(tuple(missing), artifacts)


def objects_of(manifest: Manifest, layout: Layout) -> tuple[StoredObject, ...]:
    """What a release consists of, each once."""
    blobs = (item.blob for item in manifest.artifacts if item.size_bytes > PACKED_BYTES)
    return (*layout.packs, *{blob.name: blob for blob in blobs}.values())


def _contents(objects: ObjectFiles, item: StoredObject) -> Iterable[tuple[str, int]] | None:
    """SHA-256 and size of what an object holds; None: it is not here, or not verified."""
    if not objects.sound(item):
        return None
    if not isinstance(item, Pack):
        return [(item.sha256, item.size_bytes)]
    try:
        with opened(objects.path(item)) as fd:
            table = read_table(FileReader(fd).whole, os.fstat(fd).st_size)
    except (FileNotFoundError, InvalidPackError):  # it went, or changed, just now
        return None
    return zip(table.sha256s, table.sizes, strict=True)
