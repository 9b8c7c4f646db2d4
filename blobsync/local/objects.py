"""The packs and large blobs of a store: their files, which are verified, and which a release lacks.

Thread-safe.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from blobsync.bucket.ports import OnProgress, ignore_progress
from blobsync.bucket.verification import read_table, verify_object, verify_pack_bytes
from blobsync.errors import (
    BlobMissingError,
    CorruptBlobError,
    InvalidLayoutError,
    InvalidManifestError,
    InvalidPackError,
)
from blobsync.local.disk import FileIdentity, FileReader, identity, regular
from blobsync.local.partials import Partials
from blobsync.local.store_context import StoreContext
from blobsync.release.layout import Layout, Pack, StoredObject
from blobsync.release.manifest import PACKED_BYTES, Artifact, Blob, Manifest, chunk_count


@dataclass(frozen=True, slots=True)
class MissingObjects:
    """The parts of a release that are not here or not verified. False if nothing is missing.

    `objects`, packs and large blobs to fetch, are in the order of the layout and the manifest.
    """

    objects: tuple[StoredObject, ...] = ()
    artifacts: tuple[Artifact, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.objects or self.artifacts)


class ObjectFiles:
    """Objects on disk. With `also_sha256`, a chunked blob counts only when its SHA-256 was computed too."""

    def __init__(self, base: StoreContext, *, also_sha256: bool) -> None:
        self.base = base
        self.also_sha256 = also_sha256
        self.partials = Partials(base.root / "partial")
        self.verifying = threading.Lock()
        """Held while the members of a pack are hashed: bounds the memory for any number of threads."""

    def path(self, item: StoredObject) -> Path:
        """The path of an object, which need not exist."""
        kind = "packs" if isinstance(item, Pack) else "blobs"
        return self.base.root / kind / item.name.removeprefix("b3-")[:2] / item.name

    def file_identity(self, item: StoredObject) -> FileIdentity | None:
        """Identity of the object's file, which is not read; None: there is no file."""
        stat = regular(self.path(item))
        return None if stat is None else identity(stat)

    def has(self, item: StoredObject) -> bool:
        """True if it is here and verified. Hashes it if its file is not the one that was verified.

        A file whose bytes do not fit its name goes to quarantine. If the bytes fit the name and only the size
        differs from that of `item`, `item` is wrong, and the file stays.
        """
        identity = self.file_identity(item)
        if identity is None:
            return False
        if self._is_known(item, self._digest(item, identity)):
            return identity.size_bytes == item.size_bytes
        return self.check(item)

    def sound(self, item: StoredObject) -> bool:
        """Like `has`; also checks that `item` pairs its name with the SHA-256 of the same bytes.

        The second check is made only with `also_sha256`. InvalidManifestError if `item` is wrong; the file
        stays, since other manifests may describe it correctly.
        """
        if not self.has(item):
            return False
        if isinstance(item, Pack) or not (item.chunks and self.also_sha256):
            return True
        identity = self.file_identity(item)
        digest = None if identity is None else self._digest(item, identity)
        if digest is None:  # another process has just replaced the file
            return False
        _, _, sha256 = digest.partition("+")
        if sha256 != item.sha256:
            raise InvalidManifestError(
                f"a manifest says that blob {item.name} has SHA-256 {item.sha256}, but its chunks are those "
                f"of a file with SHA-256 {sha256}: that manifest was made wrong. Publish its release again"
            )
        return True

    def check(
        self, item: StoredObject, *, from_disk: bool = False, on_progress: OnProgress = ignore_progress
    ) -> bool:
        """Hash the object, even if the index has its file as verified. A damaged file goes to quarantine.

        The index decides only whether the members of a pack are hashed, too; see `_was_whole`. An intact file
        is noted in it. `from_disk` drops the file from the page cache first. False if the file has other
        bytes or another size than `item`, or was changed meanwhile.
        """
        path = self.path(item)
        try:
            with self.base.reading(path) as fd:
                before = identity(os.fstat(fd))
                named = _as_named(item, before.size_bytes)
                if from_disk:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                if isinstance(named, Pack) and self._was_whole(named, before):
                    verify_pack_bytes(FileReader(fd), named, on_progress)
                    sha256 = None
                elif from_disk:  # on one thread and without `verifying`: the scrub must not delay others
                    sha256 = verify_object(
                        FileReader(fd),
                        before.size_bytes,
                        named,
                        also_sha256=self.also_sha256,
                        threads=1,
                        on_progress=on_progress,
                    )
                else:
                    sha256 = self.verify(fd, named, on_progress)
                    os.fdatasync(fd)  # the process that wrote it may not have waited for the disk
                unchanged = identity(os.fstat(fd)) == before
        except BlobMissingError:  # it cannot be read, or another process has just collected or quarantined it
            return False
        except (CorruptBlobError, InvalidPackError) as exc:
            if self.file_identity(item) == before:  # else it was replaced meanwhile, perhaps by a good file
                self.base.quarantine(path, str(exc))
            return False
        if unchanged:  # otherwise a process wrote to it meanwhile
            self.note_verified(item, before, sha256)
        return unchanged and named == item

    def _was_whole(self, pack: Pack, identity: FileIdentity) -> bool:
        """True if each member of this file was hashed before: then equal bytes have equal members.

        Always False with `also_sha256`: there BLAKE3 does not replace SHA-256.
        """
        return self._digest(pack, identity) == pack.name and not self.also_sha256

    def _digest(self, item: StoredObject, identity: FileIdentity) -> str | None:
        """The index's entry for this file: the object's name, followed by `+` and its SHA-256 if known."""
        return self.base.index.digest(self.base.place(self.path(item)), identity)

    def verify(self, fd: int, item: StoredObject, on_progress: OnProgress = ignore_progress) -> str | None:
        """See `verify_object`."""
        read, size = FileReader(fd), os.fstat(fd).st_size
        if isinstance(item, Pack):
            with self.verifying:
                return verify_object(read, size, item, on_progress=on_progress)
        return verify_object(read, size, item, also_sha256=self.also_sha256, on_progress=on_progress)

    def note_verified(self, item: StoredObject, identity: FileIdentity, sha256: str | None) -> None:
        """Note in the index that a file was hashed and is on the disk.

        The name of `item` fits its bytes. `sha256` is that of a chunked blob, if it was computed.
        """
        digest = item.name if sha256 is None else f"{item.name}+{sha256}"
        self.base.index.verified(self.base.place(self.path(item)), identity, digest)

    def _is_known(self, item: StoredObject, digest: str | None) -> bool:
        """True if this entry of the index has all the digests that are required."""
        name, _, sha256 = (digest or "").partition("+")
        return name == item.name and bool(
            sha256 or isinstance(item, Pack) or not item.chunks or not self.also_sha256
        )


def _as_named(item: StoredObject, size_bytes: int) -> StoredObject:
    """The object of that name, with the size of its file.

    The name determines the bytes, so a manifest or layout with a wrong size never makes an intact file count
    as damaged.
    """
    if isinstance(item, Blob) and chunk_count(size_bytes) != len(item.chunks):
        return item
    return dataclasses.replace(item, size_bytes=size_bytes)


def missing_objects(objects: ObjectFiles, manifest: Manifest, layout: Layout) -> MissingObjects:
    """Compare a release with the verified packs and blobs. Reads the tables of its packs.

    Raises as `LocalStore.missing`.
    """
    missing: list[StoredObject] = []
    here: set[tuple[str, int]] = set()
    for item in objects_of(manifest, layout):
        contents = _contents(objects, item)
        if contents is None:
            missing.append(item)
        else:
            here.update(contents)
    artifacts = tuple(item for item in manifest.artifacts if (item.sha256, item.size_bytes) not in here)
    if not any(isinstance(item, Pack) for item in missing):
        for lost in artifacts:  # all packs are here, so a small file that is missing is in none of them
            if lost.size_bytes <= PACKED_BYTES:
                raise InvalidLayoutError(
                    f"no pack in the layout of {manifest.ref} has {lost.path} ({lost.sha256}, "
                    f"{lost.size_bytes} bytes), though all packs are here; publish the release again"
                )
    return MissingObjects(tuple(missing), artifacts)


def objects_of(manifest: Manifest, layout: Layout) -> tuple[StoredObject, ...]:
    """All objects of a release, each once."""
    blobs = (item.blob for item in manifest.artifacts if item.size_bytes > PACKED_BYTES)
    return (*layout.packs, *{blob.name: blob for blob in blobs}.values())


def _contents(objects: ObjectFiles, item: StoredObject) -> Iterable[tuple[str, int]] | None:
    """SHA-256 and size of each blob in an object; None: the object is not here, or not verified."""
    if not objects.sound(item):
        return None
    if not isinstance(item, Pack):
        return [(item.sha256, item.size_bytes)]
    try:
        with objects.base.reading(objects.path(item)) as fd:
            table = read_table(FileReader(fd).whole, os.fstat(fd).st_size)
    except (BlobMissingError, InvalidPackError):  # it has just been removed or changed, or cannot be read
        return None
    return zip(table.sha256s, table.sizes, strict=True)
