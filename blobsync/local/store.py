"""Verified files on this host's disk, by digest. Several threads and processes may share one.

Layout below the root:

    packs/<aa>/<name>                 packs; small files lie in them
    blobs/<aa>/<name>                 larger blobs
    releases/<name>/<digest>.json     manifests, each written after all that it needs
    releases/<name>/<digest>.layout   which packs those are
    releases/<name>/<digest>.record   what a look needs of both; see `KeptRecord`
    trees/<digest>/...                releases as folders; beside each, `<digest>.files`: its record
    partial/<name>                    objects on their way; the next process goes on with them. See `partials`
    quarantine/                       what was found damaged, the newest of it
    sessions/<id>/                    unfinished files and needs of each live user
    scrub                             when the last whole round began; locked while one runs
    verified                          index: which packs and blobs were hashed, and what they were then
    LOCK, gc.json                     for moments of exclusion; what collection has marked

`<aa>` are the first two hexadecimal digits of the name. An object gets its name only after its bytes are on
the disk and were verified: a pack as a whole and member by member. So whatever is killed when, nothing under
`packs/` or `blobs/` was ever half-written; and since disks and people change files later, a file whose size,
time or inode is not that of the one we verified is hashed again before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import Literal

from blobsync.bucket.ports import OnProgress, ignore_progress
from blobsync.errors import BlobMissingError, InvalidLayoutError, InvalidManifestError
from blobsync.local import incoming
from blobsync.local.disk import make_folder
from blobsync.local.disk_state import DiskHealth, DiskState
from blobsync.local.incoming import Incoming
from blobsync.local.index import VerifiedIndex
from blobsync.local.objects import MissingObjects, ObjectFiles, missing_objects, read_file
from blobsync.local.releases import Release, ReleaseFiles
from blobsync.local.store_context import FOLDERS, Step, StoreContext, StoreSession
from blobsync.local.trees import Trees
from blobsync.release.layout import StoredObject
from blobsync.release.manifest import Manifest, ReleaseRef

Digests = Literal["name", "sha256"]


class LocalStore:
    """Opens or makes a store. Opening reads the index only: one line for each pack and large blob.

    Args:
        root: A folder of one file system that has hard links, if possible.
        verify: What is computed of blobs above 16 MiB: `name`, the BLAKE3 of their chunks, which names them;
            or `sha256`, that as well, each in one pass, for those who must not rely on BLAKE3. Why BLAKE3 is
            computed all the same: see `blobsync.release.manifest`.
        on_step: Called with the name of each step that changes the disk before it is made: for fault
            injection.

    Raises:
        LocalStoreError: the folder cannot be made or written.
    """

    def __init__(self, root: Path, *, verify: Digests = "name", on_step: Step = lambda _name: None) -> None:
        root = root.absolute()
        disk = DiskHealth(root)
        with disk.errors(f"opening the local store {root}"):
            for name in FOLDERS:
                make_folder(root / name)
            session = StoreSession(root / "sessions", root / "LOCK")
            index = VerifiedIndex(root / "verified", session.new_path())
            self._base = StoreContext(root, session, index, disk, on_step)
        self._objects = ObjectFiles(self._base, also_sha256=verify == "sha256")
        self._releases = ReleaseFiles(self._base)
        self._trees = Trees(self._base, self._objects)

    @property
    def root(self) -> Path:
        """The store's folder."""
        return self._base.root

    @property
    def context(self) -> StoreContext:
        """What the modules of `blobsync.local` share; not for other packages."""
        return self._base

    def disk_state(self) -> DiskState:
        """State of the disk: that of the last failure, until a write succeeds. From memory."""
        return self._base.disk.state

    def ask_disk(self) -> None:
        """If the last write failed, try a small one, to see whether the disk works again."""
        self._base.ask_disk()

    def subscribe_disk(self, listener: Callable[[DiskState], None]) -> Callable[[], None]:
        """Call a listener when the disk fails or works again, on the thread that used it: must only enqueue.

        Returns:
            A function that removes the listener. One call may still be under way.
        """
        return self._base.disk.listeners.subscribe(listener)

    def close(self) -> None:
        """Close all files, and end the session with its protection from collection. Safe to repeat."""
        self._objects.partials.close()
        self._base.index.close()
        self._base.session.close()

    def __enter__(self) -> LocalStore:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def hold(self, releases: Set[str]) -> None:
        """Protect releases, by digest, from collection by any process; replaces those of the last call.

        Raises:
            LocalStoreError: the disk failed; the releases of the last call stay protected.
        """
        with self._base.disk.errors("noting what is needed"):
            self._base.session.hold(releases)

    def object_path(self, item: StoredObject) -> Path:
        """Where an object is, or would be."""
        return self._objects.path(item)

    def has(self, item: StoredObject) -> bool:
        """Whether an object is here and verified. Hashes it if its file is not the one that was verified.

        A file with other bytes than the name says is moved to quarantine. Whether a manifest pairs the name
        of a chunked blob with its right SHA-256, `missing` says.

        Raises:
            LocalStoreError: the disk does not say.
        """
        with self._base.disk.errors(f"looking for {item.name}"):
            return self._objects.has(item)

    def receive(self, item: StoredObject) -> Incoming | None:
        """Begin or resume a download.

        Returns:
            To be used in a `with`; None: another thread or process of this host receives the object, or the
            object is here: ask `has`.

        Raises:
            LocalStoreError: the disk failed, or has no room for it.
        """
        with self._base.disk.errors(f"receiving {item.name}"):
            return incoming.receive(self._objects, item)

    def missing(self, release: Release) -> MissingObjects:
        """What of a release is not here and verified.

        Of one that was complete here, each pack and blob is looked at, no file is read. Else, or if an object
        is missing, the manifest and the tables of packs are read.

        Raises:
            BlobMissingError: the manifest must be read, and is damaged or gone.
            InvalidLayoutError: all packs are here, and a file is in none of them.
            InvalidManifestError: it pairs the name of a blob that is here with the SHA-256 of other bytes;
                known only with `verify="sha256"`.
            LocalStoreError: the disk does not say.
        """
        with self._base.disk.errors(f"looking for files of {release.ref}"):
            if release.is_recorded and all(self._objects.sound(item) for item in release.objects):
                return MissingObjects()
            return missing_objects(self._objects, release.manifest, release.layout)

    def keep(self, release: Release) -> MissingObjects:
        """Record a release that is complete, so that it is known here without the object store.

        A new layout replaces the old. A release that is recorded already costs no write.

        Returns:
            What it lacks: then it is not recorded.

        Raises:
            BlobMissingError, InvalidLayoutError, InvalidManifestError: as of `missing`.
            LocalStoreError: the disk failed.
        """
        missing = self.missing(release)
        if not missing:
            with self._base.disk.errors(f"keeping {release.ref}"):
                self._releases.keep(release)
            if not release.is_recorded:
                self._base.ask_disk()  # since all may have been written long ago
        return missing

    def kept(self, ref: ReleaseRef) -> Release | None:
        """A release that was complete here once; None: it was not, or its record was damaged.

        Raises:
            LocalStoreError: the disk does not say.
        """
        with self._base.disk.errors(f"reading the manifest of {ref}"):
            return self._releases.kept(ref)

    def is_here(self, ref: ReleaseRef) -> bool:
        """True if a release is complete here and verified. Needs no object store.

        Raises:
            LocalStoreError: the disk does not say.
        """
        kept = self.kept(ref)
        try:
            return kept is not None and not self.missing(kept)
        except (BlobMissingError, InvalidLayoutError, InvalidManifestError):
            return False

    def releases(self) -> list[ReleaseRef]:
        """All kept releases, sorted. Their records are not read.

        Raises:
            LocalStoreError: the disk does not say.
        """
        with self._base.disk.errors("listing releases"):
            return self._releases.refs()

    def materialise(self, ref: ReleaseRef) -> Path:
        """Make a kept release a read-only folder. Cheap when that is there already; safe to race.

        Returns:
            `root/trees/<digest>`. It stays while the release is held or wanted.

        Raises:
            BlobMissingError: not all of it is here, or it was not kept.
            LocalStoreError: the disk failed.
        """
        kept = self._kept(ref)
        if missing := self.missing(kept):
            raise BlobMissingError(
                f"{ref} lacks {len(missing.artifacts)} of {kept.record.file_count} files here, in "
                f"{len(missing.objects)} objects such as {missing.objects[0].name}; sync it first"
            )
        with self._base.disk.errors(f"materialising {ref}"):
            return self._trees.materialise(kept.manifest, kept.layout)

    def read(self, ref: ReleaseRef, path: str) -> Iterator[bytes]:
        """Stream a file of a kept release, without a folder.

        Members of packs are hashed as they are read. A large file counts by size, time and inode (see
        `has`), so a byte that has flipped on the disk since the last scrub is given out.

        Raises:
            CorruptPackError, InvalidPackError: a pack is damaged; the scrub, or making a tree, finds that.
            BlobMissingError: the release is not kept, or not here any more.
            ReleaseAbsentError: it has no such file.
            LocalStoreError: the disk failed.
        """
        kept = self._kept(ref)
        with self._base.disk.errors(f"reading {path} of {ref}"):
            yield from read_file(self._objects, kept.manifest, kept.layout, path)

    def verify(self, ref: ReleaseRef, *, on_progress: OnProgress = ignore_progress) -> MissingObjects:
        """Hash a kept release anew, from the disk, whatever the index says; its tree too.

        What is damaged goes to quarantine. A damaged file of the tree is no loss: the tree is made anew.

        Args:
            ref: The release.
            on_progress: See `OnProgress`; it may wait, to limit the rate.

        Returns:
            What it lacks now.

        Raises:
            BlobMissingError: it was not kept.
            LocalStoreError: the disk failed.
        """
        kept = self._kept(ref)
        with self._base.disk.errors(f"reading the manifest of {ref}"):
            manifest = kept.manifest
        for item in kept.objects:
            self.scrub_object(item, on_progress=on_progress)
        self.scrub_tree(manifest, on_progress=on_progress)
        return self.missing(Release(manifest, kept.layout))

    def scrub_object(self, item: StoredObject, *, on_progress: OnProgress = ignore_progress) -> bool:
        """Hash one object anew, from the disk, whatever the index says. What is damaged goes to quarantine.

        Args:
            item: Of a kept release.
            on_progress: As of `verify`.

        Returns:
            Whether nothing was found wrong. An object that is not here is not wrong: a look finds that.

        Raises:
            LocalStoreError: the disk failed.
        """
        with self._base.disk.errors(f"verifying {item.name}"):
            return self._objects.look(item) is None or self._objects.check(
                item, from_disk=True, on_progress=on_progress
            )

    def scrub_tree(self, manifest: Manifest, *, on_progress: OnProgress = ignore_progress) -> None:
        """Hash the files of a release's tree that are no links to blobs, from the disk.

        A damaged one goes to quarantine. Nothing is lost: the tree is made anew when it is asked for.

        Raises:
            LocalStoreError: the disk failed.
        """
        with self._base.disk.errors(f"verifying the tree of {manifest.ref}"):
            self._trees.scrub(manifest, on_progress)

    def _kept(self, ref: ReleaseRef) -> Release:
        kept = self.kept(ref)
        if kept is None:
            raise BlobMissingError(f"{ref} is not kept here; sync it first")
        return kept
