"""What a release lacks here; answered from memory while none of its files has changed. Thread-safe."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from blobsync.errors import InvalidLayoutError, InvalidPackError
from blobsync.local.disk import FileIdentity, identity, regular
from blobsync.local.objects import ObjectFiles
from blobsync.release.artifacts import DIGEST_BYTES, Artifacts, contents
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
    artifacts: Sequence[Artifact] = ()

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
        files = manifest.files
        here = _Here(files)
        for item in objects:
            found = self._contents(item)
            if found is None:
                missing.append(item)
            else:
                here.take(found)
        artifacts = files.only(here.lacking())
        if not any(isinstance(item, Pack) for item in missing):
            for lost in artifacts:  # none, or an error at the first but for large ones
                if lost.size_bytes <= PACKED_BYTES:
                    raise InvalidLayoutError(
                        f"no pack in the layout of {manifest.ref} has {lost.path} ({lost.sha256}, "
                        f"{lost.size_bytes} bytes), though all of them are here; publish the release again"
                    )
        return Lacking(tuple(missing), artifacts)

    def _contents(self, item: StoredObject) -> Iterable[bytes] | None:
        """What an object holds, as of `content`; None: it is not here, or not verified."""
        if not self._objects.sound(item):
            return None
        if not isinstance(item, Pack):
            return contents(bytes.fromhex(item.sha256), [item.size_bytes])
        try:
            table = self._objects.tables.of(self._objects.path(item))
        except (FileNotFoundError, InvalidPackError):  # it went, or changed, just now
            return None
        return contents(table.sha256s.raw, table.sizes)


class _Here:
    """Finds out which files have their content here. As a set, the contents of 100,000 would take 15 MiB.

    Packs are mostly in the order of the manifest, so most are found behind the last one, and only the others
    are kept.

    Args:
        files: Of a release.
    """

    def __init__(self, files: Artifacts) -> None:
        self._files = files
        self._here = bytearray(len(files))
        self._others: set[bytes] = set()

    def take(self, found: Iterable[bytes]) -> None:
        """These contents are here."""
        files, here, again = self._files, self._here, self._files.repeated
        at, count = -1, len(here)
        for content in found:
            if at < 0:
                at = max(0, files.place_of(content[:DIGEST_BYTES]))
            while at < count and (here[at] or at in again):
                at += 1
            if at < count and files.content(at) == content:
                here[at] = 1
                at += 1
            else:
                self._others.add(content)

    def lacking(self) -> array[int]:
        """Which files have theirs nowhere."""
        files, here, again, others = self._files, self._here, self._files.repeated, self._others
        twice = {files.content(index) for index in again}
        if twice:
            others |= {row for index, row in enumerate(files.contents()) if here[index] and row in twice}
        absent = (index for index in range(len(here)) if not here[index])
        return array("I", (index for index in absent if files.content(index) not in others))


def objects_of(manifest: Manifest, layout: Layout) -> tuple[StoredObject, ...]:
    """What a release consists of, each once; of one that lies loose, as far as the layout knows."""
    if layout.loose is not None:
        return (*layout.packs, *loose_blobs(manifest, layout.loose))
    blobs = (item.blob for item in manifest.files.large())
    return (*layout.packs, *{blob.name: blob for blob in blobs}.values())


def _look(paths: tuple[str, ...]) -> tuple[FileIdentity | None, ...]:
    found = map(regular, paths)
    return tuple([None if item is None else identity(item) for item in found])
