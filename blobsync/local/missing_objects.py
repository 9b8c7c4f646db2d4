"""What a release lacks here; answered from memory while none of its files has changed. Thread-safe."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from blobsync.bucket.verification import read_table
from blobsync.errors import InvalidLayoutError, InvalidPackError
from blobsync.local.disk import FileIdentity, FileReader, identity, opened, regular
from blobsync.local.objects import ObjectFiles
from blobsync.release.blob import PACKED_BYTES
from blobsync.release.layout import Layout, Pack
from blobsync.release.manifest import Artifact, Manifest
from blobsync.release.objects import StoredObject

_ANSWERS = 256


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


@dataclass(slots=True)
class _Answer:
    objects: tuple[StoredObject, ...]
    paths: tuple[str, ...]
    seen: tuple[FileIdentity | None, ...]
    missing: MissingObjects


class MissingCache:
    """Says what releases lack; from memory while none of their files has changed. Thread-safe.

    Args:
        objects: The packs and blobs.
    """

    def __init__(self, objects: ObjectFiles) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[str, tuple[Pack, ...]], _Answer] = OrderedDict()

    def missing(self, manifest: Manifest, layout: Layout) -> MissingObjects:
        """See `blobsync.LocalStore.missing`. OSError passes through."""
        key = manifest.digest, layout.packs
        with self._lock:
            known = self._answers.get(key)
        if known is not None and _look(known.paths) == known.seen:
            return known.missing
        objects = known.objects if known is not None else objects_of(manifest, layout)
        paths = known.paths if known is not None else tuple(str(self._objects.path(item)) for item in objects)
        seen = _look(paths)  # before it is verified: what changes meanwhile is looked at again
        missing = self._compare(manifest, objects)
        with self._lock:
            self._answers[key] = _Answer(objects, paths, seen, missing)
            self._answers.move_to_end(key)
            while len(self._answers) > _ANSWERS:
                self._answers.popitem(last=False)
        return missing

    def _compare(self, manifest: Manifest, objects: tuple[StoredObject, ...]) -> MissingObjects:
        missing: list[StoredObject] = []
        here: set[tuple[str, int]] = set()
        for item in objects:
            found = self._contents(item)
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

    def _contents(self, item: StoredObject) -> Iterable[tuple[str, int]] | None:
        """SHA-256 and size of what an object holds; None: it is not here, or not verified."""
        if not self._objects.sound(item):
            return None
        if not isinstance(item, Pack):
            return [(item.sha256, item.size_bytes)]
        try:
            with opened(self._objects.path(item)) as fd:
                table = read_table(FileReader(fd).whole, os.fstat(fd).st_size)
        except (FileNotFoundError, InvalidPackError):  # it went, or changed, just now
            return None
        return zip(table.sha256s, table.sizes, strict=True)


def objects_of(manifest: Manifest, layout: Layout) -> tuple[StoredObject, ...]:
    """What a release consists of, each once."""
    blobs = (item.blob for item in manifest.artifacts if item.size_bytes > PACKED_BYTES)
    return (*layout.packs, *{blob.name: blob for blob in blobs}.values())


def _look(paths: tuple[str, ...]) -> tuple[FileIdentity | None, ...]:
    found = map(regular, paths)
    return tuple([None if item is None else identity(item) for item in found])
