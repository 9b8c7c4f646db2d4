"""Verified files on this host's disk, by digest. Several threads and processes may share a store.

Layout below the root:

    packs/<aa>/<name>                 packs; small files lie in them
    blobs/<aa>/<name>                 larger blobs
    releases/<name>/<digest>.json     manifests, each written after all objects of its release
    releases/<name>/<digest>.layout   the packs of the release
    releases/<name>/<digest>.record   the data of both that a look needs; see `KeptRecord`
    trees/<digest>/...                releases as folders; `<digest>.files` is the record of each
    partial/<name>                    unfinished objects; the next process continues them. See `partials`
    quarantine/                       damaged files; only the newest are kept
    sessions/<id>/                    of each live session: unfinished files, and the releases that it needs
    scrub                             when the last whole round began; locked while a round runs
    verified                          index: which packs and blobs were hashed, with size, time and inode
    LOCK, gc.json                     a lock that is held for moments; what the collection has marked

`<aa>` are the first two hexadecimal digits of the name. An object gets its name only after its bytes are on
the disk and were verified: a pack as a whole and member by member. So no file under `packs/` or `blobs/` is
ever half-written, whenever a process is killed. Disks and people change files later: a file whose size, time
or inode differs from that of the verified file is hashed again before it counts.
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
from blobsync.local.objects import MissingObjects, ObjectFiles, missing_objects
from blobsync.local.reading import read_file
from blobsync.local.releases import Release, ReleaseFiles
from blobsync.local.store_context import FOLDERS, Step, StoreContext, StoreSession
from blobsync.local.trees import Trees
from blobsync.release.layout import StoredObject
from blobsync.release.manifest import Manifest, ReleaseRef

Digests = Literal["name", "sha256"]


class LocalStore:
    """Opens or makes a store. Opening reads only the index: one line for each pack and large blob.

    A method that uses the disk raises a LocalStoreError if the disk fails, or has no room.

    Args:
        root: A folder on one file system, with hard links if possible.
        verify: Digests that are computed for blobs above 16 MiB. `name`: BLAKE3 of their chunks, which names
            them. `sha256`: SHA-256 as well, each in one pass, for users who must not rely on BLAKE3. Why
            BLAKE3 is computed in both cases: see `blobsync.release.manifest`.
        on_step: Called before each step that changes the disk, with the step's name: for fault injection.

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
            try:
                index = VerifiedIndex(root / "verified", session.new_path())
            except BaseException:
                session.close()
                raise
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
        """Shared by the modules of `blobsync.local`; not for other packages."""
        return self._base

    def disk_state(self) -> DiskState:
        """State of the disk, from memory: the last failure, until a write succeeds."""
        return self._base.disk.state

    def ask_disk(self) -> None:
        """If the last write failed, try a small write, to see whether the disk works again."""
        self._base.ask_disk()

    def subscribe_disk(self, listener: Callable[[DiskState], None]) -> Callable[[], None]:
        """Call a listener when the disk fails or works again, on the thread that used it: must only enqueue.

        Returns a function that removes the listener. One call may still be under way.
        """
        return self._base.disk.listeners.subscribe(listener)

    def close(self) -> None:
        """Close all files, and end the session and its protection from collection. Safe to repeat."""
        self._objects.partials.close()
        self._base.index.close()
        self._base.session.close()

    def __enter__(self) -> LocalStore:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def hold(self, releases: Set[str], at_most_s: float | None = None) -> None:
        """Protect releases, by digest, from collection by any process. Replaces those of the last call.

        LocalStoreError also if another process has locked the store for more than `at_most_s` seconds (0: try
        once; None: 30). The releases of the last call stay protected after an error.
        """
        with self._base.disk.errors("noting what is needed"):
            self._base.session.hold(releases, at_most_s)

    def has(self, item: StoredObject) -> bool:
        """True if an object is here and verified. Hashes it if its file is not the one that was verified.

        A file whose bytes do not fit its name is moved to quarantine. This does not check whether a manifest
        pairs the name of a chunked blob with its right SHA-256; `missing` does.
        """
        with self._base.disk.errors(f"looking for {item.name}"):
            return self._objects.has(item)

    def receive(self, item: StoredObject) -> Incoming | None:
        """Begin or resume a download.

        Returns the download, for use in a `with`. None: another thread or process of this host receives the
        object, or the object is here already: `has` tells which.
        """
        with self._base.disk.errors(f"receiving {item.name}"):
            return incoming.receive(self._objects, item)

    def missing(self, release: Release) -> MissingObjects:
        """The objects and files of a release that are not here or not verified.

        For a release that was complete here, size, time and inode of each pack and blob are compared, and no
        file is read. Otherwise, or if an object is missing, the manifest and the tables of packs are read.

        Raises:
            BlobMissingError: the manifest must be read, and is damaged or missing.
            InvalidLayoutError: all packs are here, and none of them has one of the files.
            InvalidManifestError: it pairs the name of a blob that is here with the SHA-256 of other bytes;
                found only with `verify="sha256"`.
        """
        with self._base.disk.errors(f"looking for files of {release.ref}"):
            if release.is_recorded and all(self._objects.sound(item) for item in release.objects):
                return MissingObjects()
            return missing_objects(self._objects, release.manifest, release.layout)

    def keep(self, release: Release) -> MissingObjects:
        """Record a complete release, so that it can be used without the object store.

        A new layout replaces the old one. If the release is recorded already, nothing is written. Returns
        what the release lacks; it is recorded only if nothing is missing. Raises as `missing` does.
        """
        missing = self.missing(release)
        if not missing:
            with self._base.disk.errors(f"keeping {release.ref}"):
                self._releases.keep(release)
            if not release.is_recorded:
                self._base.ask_disk()  # all files may be old, so no write has shown that the disk works
        return missing

    def kept(self, ref: ReleaseRef) -> Release | None:
        """A release that was complete here once. None: it was not, or what is read of it here is damaged."""
        with self._base.disk.errors(f"reading the manifest of {ref}"):
            return self._releases.kept(ref)

    def is_listed(self, ref: ReleaseRef) -> bool:
        """True if `releases` lists it: manifest and layout are on the disk. They are not read."""
        with self._base.disk.errors(f"looking for the manifest of {ref}"):
            return self._releases.is_listed(ref)

    def is_here(self, ref: ReleaseRef) -> bool:
        """True if a release is complete here and verified. Needs no object store."""
        kept = self.kept(ref)
        try:
            return kept is not None and not self.missing(kept)
        except (BlobMissingError, InvalidLayoutError, InvalidManifestError):
            return False

    def releases(self) -> list[ReleaseRef]:
        """All kept releases, sorted. Their records are not read."""
        with self._base.disk.errors("listing releases"):
            return self._releases.refs()

    def materialise(self, ref: ReleaseRef) -> Path:
        """Make the tree of a kept release. Cheap if the tree exists. Threads and processes may race.

        Returns `root/trees/<digest>`, which stays while the release is held or wanted. BlobMissingError if a
        file is missing, or the release was not kept.
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

        Members of packs are hashed as they are read. A large file is compared only by size, time and inode
        (see `has`), so a byte that has flipped on the disk since the last scrub is returned.

        Raises:
            CorruptPackError, InvalidPackError: a pack is damaged. It is in quarantine now.
            BlobMissingError: the release is not kept, or not complete any more, or the disk cannot read the
                file, which is in quarantine now.
            ReleaseAbsentError: it has no such file.
        """
        kept = self._kept(ref)
        with self._base.disk.errors(f"reading {path} of {ref}"):
            yield from read_file(self._objects, kept.manifest, kept.layout, path)

    def verify(self, ref: ReleaseRef, *, on_progress: OnProgress = ignore_progress) -> MissingObjects:
        """Hash all objects of a kept release, and its tree, from the disk, even if they were verified before.

        Damaged files go to quarantine. For those of the tree: see `scrub_tree`. `on_progress` may wait, to
        limit the rate. Returns what the release lacks now. BlobMissingError if it was not kept, or its
        manifest or layout is damaged; otherwise raises as `missing` does.
        """
        kept = self._kept(ref)
        manifest = kept.manifest
        for item in kept.objects:
            self.scrub_object(item, on_progress=on_progress)
        self.scrub_tree(manifest, on_progress=on_progress)
        return self.missing(Release(manifest, kept.layout))

    def scrub_object(self, item: StoredObject, *, on_progress: OnProgress = ignore_progress) -> bool:
        """Hash one object from the disk, even if it was verified before. A damaged one goes to quarantine.

        True if no damage was found. A missing object is not damage: a look finds it.
        """
        with self._base.disk.errors(f"verifying {item.name}"):
            return self._objects.file_identity(item) is None or self._objects.check(
                item, from_disk=True, on_progress=on_progress
            )

    def scrub_tree(self, manifest: Manifest, *, on_progress: OnProgress = ignore_progress) -> None:
        """Hash those files of a release's tree that are not links to blobs, from the disk.

        A damaged file goes to quarantine. Until `materialise` makes the tree again, the tree lacks this file,
        also for a program that is reading the tree.
        """
        with self._base.disk.errors(f"verifying the tree of {manifest.ref}"):
            self._trees.scrub(manifest, on_progress)

    def _kept(self, ref: ReleaseRef) -> Release:
        kept = self.kept(ref)
        if kept is None:
            raise BlobMissingError(f"{ref} is not kept here; sync it first")
        return kept
