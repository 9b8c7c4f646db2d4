"""What a release lacks here; answered from memory while none of its files has changed. Thread-safe."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from blobsync.errors import InvalidLayoutError, InvalidPackError
from blobsync.local.disk import FileIdentity, identity, regular
from blobsync.local.objects import ObjectFiles
from blobsync.release.blob import PACKED_BYTES
from blobsync.release.layout import Layout, Pack
from blobsync.release.loose import loose_blobs
from blobsync.release.manifest import Artifact, Manifest
from blobsync.release.objects import Fetchable, StoredObject

_ANSWERS = 256


@dataclass(frozen=True, slots=True)
class Lacking:
    """What is not here, or not verified. False when nothing is.

    Attributes:
        objects: Packs or bundles, and large blobs to fetch, in the order of the layout and the manifest.
        artifacts: Files that need them.
    """

    objects: tuple[Fetchable, ...] = ()
    artifacts: tuple[Artifact, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.objects or self.artifacts)


@dataclass(slots=True)
class _Answer:
    objects: tuple[StoredObject, ...]
    paths: tuple[str, ...]
    seen: tuple[FileIdentity | None, ...]
    lacking: Lacking


class Questions:
    """Answers what releases lack.

    Args:
        objects: The packs and blobs.
    """

    def __init__(self, objects: ObjectFiles) -> None:
        self._objects = objects
        self._lock = threading.Lock()
        self._answers: OrderedDict[tuple[str, tuple[Pack, ...]], _Answer] = OrderedDict()

    def lacks(self, manifest: Manifest, layout: Layout) -> Lacking:
        """See `blobsync.LocalStore.lacks`. OSError passes through."""
        key = manifest.digest, layout.packs
        with self._lock:
            known = self._answers.get(key)
        if known is not None and _look(known.paths) == known.seen:
            return known.lacking
        objects = known.objects if known is not None else objects_of(manifest, layout)
        paths = known.paths if known is not None else tuple(str(self._objects.path(item)) for item in objects)
        seen = _look(paths)  # before it is verified: what changes meanwhile is looked at again
        lacking = self._compare(manifest, objects)
        with self._lock:
            self._answers[key] = _Answer(objects, paths, seen, lacking)
            self._answers.move_to_end(key)
            while len(self._answers) > _ANSWERS:
                self._answers.popitem(last=False)
        return lacking

    def _compare(self, manifest: Manifest, objects: tuple[StoredObject, ...]) -> Lacking:
        missing: list[StoredObject] = []
        sizes: dict[str, int] = {}
        for item in objects:
            found = self._contents(item)
            if found is None:
                missing.append(item)
            else:
                sizes.update(found)
        artifacts = tuple(item for item in manifest.artifacts if sizes.get(item.sha256) != item.size_bytes)
        if not any(isinstance(item, Pack) for item in missing):
            for lost in artifacts:
                if lost.size_bytes <= PACKED_BYTES:
                    raise InvalidLayoutError(
                        f"no pack in the layout of {manifest.ref} has {lost.path} ({lost.sha256}, "
                        f"{lost.size_bytes} bytes), though all of them are here; publish the release again"
                    )
        return Lacking(tuple(missing), artifacts)

    def _contents(self, item: StoredObject) -> Iterable[tuple[str, int]] | None:
        """Digests and sizes of what an object holds; None: it is not here, or not verified."""
        if not self._objects.sound(item):
            return None
        if not isinstance(item, Pack):
            return ((item.sha256, item.size_bytes),)
        try:
            table = self._objects.tables.of(self._objects.path(item))
        except (FileNotFoundError, InvalidPackError):  # it went, or changed, just now
            return None
        return zip(table.sha256s, table.sizes, strict=True)


def objects_of(manifest: Manifest, layout: Layout) -> tuple[StoredObject, ...]:
    """What a release consists of, each once; of one that lies loose, as far as the layout knows."""
    if layout.loose is not None:
        return (*layout.packs, *loose_blobs(manifest, layout.loose))
    blobs = (item.blob for item in manifest.artifacts if item.size_bytes > PACKED_BYTES)
    return (*layout.packs, *{blob.name: blob for blob in blobs}.values())


def _look(paths: tuple[str, ...]) -> tuple[FileIdentity | None, ...]:
    found = map(regular, paths)
    return tuple([None if item is None else identity(item) for item in found])
