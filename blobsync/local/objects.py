"""The packs and large blobs of a store: where they are, and which are verified; what a release lacks of them.

Thread-safe.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from blobsync.bucket.ports import OnProgress, ignore_progress
from blobsync.bucket.verification import read_table, verify_object, verify_pack_bytes
from blobsync.errors import CorruptBlobError, InvalidLayoutError, InvalidManifestError, InvalidPackError
from blobsync.local.disk import FileIdentity, FileReader, identity, opened, regular
from blobsync.local.partials import Partials
from blobsync.local.store_context import StoreContext
from blobsync.release.blob import PACKED_BYTES, Blob, chunk_count
from blobsync.release.layout import Layout, Pack, StoredObject
from blobsync.release.manifest import Artifact, Manifest

_UNREADABLE = {errno.EACCES, errno.EIO, errno.EPERM, errno.ELOOP}
"""A file that cannot be read is as lost as one with other bytes: a bad sector, a permission taken away."""


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


class ObjectFiles:
    """Objects on disk.

    Args:
        base: The store.
        also_sha256: A chunked blob counts only when its SHA-256 was computed too; see `sound`.
    """

    def __init__(self, base: StoreContext, *, also_sha256: bool) -> None:
        self.base = base
        self.also_sha256 = also_sha256
        self.partials = Partials(base.root / "partial")
        self.verifying = threading.Lock()
        """Held while the members of a pack are hashed, so that memory is bounded whatever the threads."""

    def path(self, item: StoredObject) -> Path:
        """Where an object is, or would be."""
        kind = "packs" if isinstance(item, Pack) else "blobs"
        return self.base.root / kind / item.name.removeprefix("b3-")[:2] / item.name

    def look(self, item: StoredObject) -> FileIdentity | None:
        """The file that is there now, unread; None: none."""
        found = regular(self.path(item))
        return None if found is None else identity(found)

    def has(self, item: StoredObject) -> bool:
        """Whether it is here and verified; if its file is another than the one that was, by hashing it.

        A file with other bytes than its name says goes to quarantine. One of another size than `item` says
        does not: it is `item` that lies, if the bytes are those of the name.

        Raises:
            OSError: the disk does not say.
        """
        path = self.path(item)
        found = regular(path)
        if found is None:
            return False
        if self._is_known(item, self.base.index.digest(self.base.place(path), identity(found))):
            return identity(found).size_bytes == item.size_bytes
        return self.check(item)

    def sound(self, item: StoredObject) -> bool:
        """As `has`; and `item` pairs its name with the SHA-256 of the same bytes.

        That is known only where SHA-256 is computed too. A file that `item` describes wrongly stays: other
        manifests may describe it rightly.

        Raises:
            InvalidManifestError: the SHA-256 is of other bytes.
            OSError: the disk does not say.
        """
        if not self.has(item):
            return False
        if isinstance(item, Pack) or not (item.chunks and self.also_sha256):
            return True
        path = self.path(item)
        found = regular(path)
        digest = None if found is None else self.base.index.digest(self.base.place(path), identity(found))
        if digest is None:  # replaced just now
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
        """Hash it, whatever the index says. A damaged file goes to quarantine.

        Args:
            item: The object.
            from_disk: Ask the disk, not what memory remembers of it.
            on_progress: See `OnProgress`.

        Raises:
            OSError: the disk failed.
        """
        path = self.path(item)
        try:
            with opened(path) as fd:
                before = identity(os.fstat(fd))
                named = _as_named(item, before.size_bytes)
                if from_disk:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                if isinstance(named, Pack) and self._was_whole(named, before):
                    verify_pack_bytes(FileReader(fd), named, on_progress)
                    sha256 = None
                elif from_disk:  # slowly: the scrub must not hold up other threads
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
        except FileNotFoundError:  # collected or quarantined by another process just now
            return False
        except (CorruptBlobError, InvalidPackError) as exc:
            self.base.quarantine(path, str(exc))
            return False
        except OSError as exc:
            if exc.errno not in _UNREADABLE:
                raise
            self.base.quarantine(path, f"it cannot be read: {exc}")
            return False
        if unchanged:  # else it was written to meanwhile
            self.note_verified(item, before, sha256)
        return unchanged and named == item

    def _was_whole(self, pack: Pack, found: FileIdentity) -> bool:
        """True if each member of this file was hashed once: then the same bytes have the same members.

        Where SHA-256 is asked for, BLAKE3 does not stand for it.
        """
        known = self.base.index.digest(self.base.place(self.path(pack)), found)
        return known == pack.name and not self.also_sha256

    def verify(self, fd: int, item: StoredObject, on_progress: OnProgress = ignore_progress) -> str | None:
        """See `verify_object`."""
        read, size = FileReader(fd), os.fstat(fd).st_size
        if isinstance(item, Pack):
            with self.verifying:
                return verify_object(read, size, item, on_progress=on_progress)
        return verify_object(read, size, item, also_sha256=self.also_sha256, on_progress=on_progress)

    def note_verified(self, item: StoredObject, found: FileIdentity, sha256: str | None) -> None:
        """This file was hashed, and is on the disk.

        Args:
            item: Whose name its bytes have.
            found: The file.
            sha256: Of a chunked blob, if it was computed.
        """
        digest = item.name if sha256 is None else f"{item.name}+{sha256}"
        self.base.index.verified(self.base.place(self.path(item)), found, digest)

    def _is_known(self, item: StoredObject, digest: str | None) -> bool:
        """Whether the index has all that is asked for of this object."""
        name, _, sha256 = (digest or "").partition("+")
        return name == item.name and bool(
            sha256 or isinstance(item, Pack) or not item.chunks or not self.also_sha256
        )


def _as_named(item: StoredObject, size_bytes: int) -> StoredObject:
    """The object of that name with the size that its file has.

    The name alone says what the bytes must be, so a manifest or layout with a wrong size never makes a sound
    file count as damaged.
    """
    if isinstance(item, Blob) and chunk_count(size_bytes) != len(item.chunks):
        return item
    return dataclasses.replace(item, size_bytes=size_bytes)


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
