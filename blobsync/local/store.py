"""Verified files on this host's disk, by digest. Several threads and processes may share one.

Layout below the root:

    packs/<aa>/<name>                 packs, as they came or were gathered; small files lie in them
    blobs/<aa>/<name>                 larger blobs
    releases/<name>/<digest>.json     manifests, each written after all that it needs
    releases/<name>/<digest>.layout   which packs those are
    releases/<name>/<digest>.record   what a look needs of both; see `kept_record`
    trees/<digest>/...                releases as folders; beside each, `<digest>.files`: its record
    partial/<name>                    objects on their way; the next process goes on with them. See `partials`
    quarantine/                       what was found damaged, the newest of it
    sessions/<id>/                    unfinished files and needs of each live user
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

from blobsync.errors import BlobMissingError
from blobsync.local import incoming, reading
from blobsync.local.disk import make_folder
from blobsync.local.disk_state import DiskHealth, DiskState
from blobsync.local.foundation import FOLDERS, Foundation, Step
from blobsync.local.gathering import Gathering, gather
from blobsync.local.incoming import Incoming
from blobsync.local.index import VerifiedIndex
from blobsync.local.lacking import Lacking, Questions, objects_of
from blobsync.local.loose import LooseQuestions
from blobsync.local.objects import ObjectFiles
from blobsync.local.releases import KeptRelease, ReleaseFiles
from blobsync.local.session import StoreSession
from blobsync.local.trees import Trees
from blobsync.release.layout import Layout
from blobsync.release.loose import Bundle
from blobsync.release.manifest import Manifest, ReleaseRef
from blobsync.release.objects import StoredObject
from blobsync.storage.ports import GoingOn, go_on

Digests = Literal["name", "sha256"]


class LocalStore:
    """Opens or makes a store. Opening reads the index only: one line for each pack and large blob.

    Args:
        root: A folder of one file system that has hard links, if possible.
        verify: What is computed of blobs above 16 MiB: `name`, the BLAKE3 of their chunks, which names them;
            or `sha256`, that as well, each in one pass. With it, a file has the SHA-256 of its manifest by
            SHA-256 alone, for those who must not rely on BLAKE3. BLAKE3 is not left out: the name of the
            object, on disk and in the bucket, is made of it, so a manifest that pairs a name with the
            SHA-256 of other bytes would else put these in the place of a good blob of another release; and
            by it a chunk that came wrong is known before the whole is here.
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
            self._base = Foundation(root, session, index, disk, on_step)
        self._objects = ObjectFiles(self._base, also_sha256=verify == "sha256")
        self._questions = Questions(self._objects)
        self._loose = LooseQuestions(self._objects)
        self._releases = ReleaseFiles(self._base)
        self._trees = Trees(self._base, self._objects)

    @property
    def root(self) -> Path:
        """The store's folder."""
        return self._base.root

    @property
    def foundation(self) -> Foundation:
        """What the parts of this package stand on; not for others."""
        return self._base

    @property
    def lock_file(self) -> Path:
        """Held for moments, by whoever changes what is protected from collection, or collects."""
        return self._base.lock_file

    @property
    def session(self) -> StoreSession:
        """What this user has to itself."""
        return self._base.session

    def disk_state(self) -> DiskState:
        """How the disk does: from the last failure, until a write succeeds. Takes no time."""
        return self._base.disk.state

    def ask_disk(self) -> None:
        """If a write was refused at last, find out with a small one whether the disk takes bytes again."""
        self._base.ask_disk()

    def subscribe_disk(self, listener: Callable[[DiskState], None]) -> Callable[[], None]:
        """Be told when the disk fails, or is well again, on the thread that met it: must only enqueue.

        Returns:
            What ends that. One call may be under way still.
        """
        return self._base.disk.listeners.subscribe(listener)

    def close(self) -> None:
        """Let go of everything held. Safe to repeat."""
        self._objects.partials.close()
        self._base.index.close()
        self._base.session.close()

    def __enter__(self) -> LocalStore:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def hold(self, releases: Set[str]) -> None:
        """Protect releases, by digest, from collection by any process; in place of what we held before.

        Raises:
            LocalStoreError: the disk failed; what was held before is.
        """
        with self._base.disk.errors("noting what is needed"):
            self._base.session.hold(releases)

    def object_path(self, item: StoredObject) -> Path:
        """Where an object is, or would be."""
        return self._objects.path(item)

    def has(self, item: StoredObject) -> bool:
        """Whether an object is here and verified. Hashes it if its file is not the one that was verified.

        A file with other bytes than the name says is moved to quarantine. Whether a manifest pairs the name
        of a chunked blob with its right SHA-256, `lacks` says.

        Raises:
            LocalStoreError: the disk does not say.
        """
        with self._base.disk.errors(f"looking for {item.name}"):
            return self._objects.has(item)

    def receive(self, item: StoredObject) -> Incoming | None:
        """Begin or resume a download.

        Returns:
            To be used in a `with`; None: another thread or process of this host receives the object, or it
            is here already: ask `has`.

        Raises:
            LocalStoreError: the disk failed, or has no room for it.
        """
        with self._base.disk.errors(f"receiving {item.name}"):
            return incoming.receive(self._objects, item)

    def gather(self, bundle: Bundle) -> Gathering | None:
        """Begin to receive what of a bundle is not here yet; that may be nothing.

        Returns:
            To be used in a `with`; None: another thread or process of this host receives it.

        Raises:
            LocalStoreError: the disk failed, or has no room for it.
        """
        with self._base.disk.errors(f"receiving {bundle.name}"):
            return gather(self._objects, self._loose, bundle)

    def lacks(self, manifest: Manifest, layout: Layout) -> Lacking:
        """What of a release is not here and verified. Cheap to ask again: one look at each pack and blob.

        Raises:
            InvalidLayoutError: all packs are here, and a file is in none of them.
            InvalidManifestError: it pairs the name of a blob that is here with the SHA-256 of other bytes;
                known only with `verify="sha256"`.
            LocalStoreError: the disk does not say.
        """
        with self._base.disk.errors(f"looking for files of {manifest.ref}"):
            if layout.loose is not None:
                return self._loose.lacks(manifest, layout)
            return self._questions.lacks(manifest, layout)

    def lacks_kept(self, kept: KeptRelease) -> Lacking:
        """As `lacks`. Of a release that was complete here, the manifest is read only if something is missing.

        Raises:
            BlobMissingError: it must be read, and is damaged or gone.
            InvalidLayoutError, InvalidManifestError, LocalStoreError: as of `lacks`.
        """
        with self._base.disk.errors(f"looking for files of {kept.ref}"):
            if kept.is_recorded and all(self._objects.sound(item) for item in kept.objects):
                return Lacking()
            manifest = kept.manifest
        return self.lacks(manifest, kept.layout)

    def placed(self, manifest: Manifest, layout: Layout) -> Layout:
        """The layout of a release that lacks nothing, as `keep` keeps it.

        It has the packs of this store that hold what lies loose in the bucket.

        Raises:
            LocalStoreError: the disk does not say.
        """
        if layout.loose is None:
            return layout
        with self._base.disk.errors(f"looking for files of {manifest.ref}"):
            return self._loose.placed(manifest, layout)

    def keep(self, manifest: Manifest, layout: Layout) -> None:
        """Record a release, so that it is known here without the object store. A new layout replaces the old.

        Raises:
            BlobMissingError: not all of it is here; that comes first.
            InvalidLayoutError: as of `lacks`.
            LocalStoreError: the disk failed.
        """
        self._require(manifest, layout)
        layout = self.placed(manifest, layout)
        with self._base.disk.errors(f"keeping {manifest.ref}"):
            self._releases.keep(manifest, layout)
        self._base.ask_disk()  # since all may have been written long ago

    def kept(self, ref: ReleaseRef) -> KeptRelease | None:
        """A release that was complete here once; None: it was not, or its record was damaged.

        Raises:
            LocalStoreError: the disk does not say.
        """
        with self._base.disk.errors(f"reading the manifest of {ref}"):
            return self._releases.kept(ref)

    def releases(self) -> list[ReleaseRef]:
        """All kept releases, sorted. Their records are not read.

        Raises:
            LocalStoreError: the disk does not say.
        """
        with self._base.disk.errors("listing releases"):
            return self._releases.refs()

    def materialise(self, manifest: Manifest) -> Path:
        """Give a kept release as a read-only folder. Cheap when it is there already; safe to race.

        Returns:
            `root/trees/<digest>`. It stays while the release is held or wanted.

        Raises:
            BlobMissingError: not all of it is here, or it was not kept.
            LocalStoreError: the disk failed.
        """
        layout = self._layout(manifest)
        self._require(manifest, layout)
        with self._base.disk.errors(f"materialising {manifest.ref}"):
            return self._trees.materialise(manifest, layout)

    def read(self, ref: ReleaseRef, path: str) -> Iterator[bytes]:
        """Stream a file of a kept release, without a tree. Verified: see `has`.

        Raises:
            BlobMissingError: the release is not kept, or not here any more.
            ReleaseAbsentError: it has no such file.
            LocalStoreError: the disk failed.
        """
        with self._base.disk.errors(f"reading {path} of {ref}"):
            kept = self._releases.kept(ref)
            if kept is None:
                raise BlobMissingError(f"{ref} is not kept here; sync it first")
            yield from reading.read(self._objects, kept, path)

    def verify(self, manifest: Manifest, *, going_on: GoingOn = go_on) -> Lacking:
        """Hash a kept release anew, from the disk, whatever the index says; its tree too.

        What is damaged goes to quarantine. A damaged file of the tree is no loss: the tree is made anew.

        Args:
            manifest: The release.
            going_on: Called with the bytes read since the last call; it waits, to limit the rate, or raises
                to stop.

        Returns:
            What it lacks now.

        Raises:
            BlobMissingError: it was not kept.
            LocalStoreError: the disk failed.
        """
        layout = self._layout(manifest)
        for item in objects_of(manifest, layout):
            self.scrub_object(item, going_on=going_on)
        self.scrub_tree(manifest, going_on=going_on)
        return self.lacks(manifest, layout)

    def scrub_object(self, item: StoredObject, *, going_on: GoingOn = go_on) -> bool:
        """Hash one object anew, from the disk, whatever the index says. What is damaged goes to quarantine.

        Args:
            item: Of a kept release.
            going_on: As of `verify`.

        Returns:
            Whether nothing was found wrong. An object that is not here is not wrong: a look finds that.

        Raises:
            LocalStoreError: the disk failed.
        """
        with self._base.disk.errors(f"verifying {item.name}"):
            return self._objects.look(item) is None or self._objects.check(
                item, from_disk=True, going_on=going_on
            )

    def scrub_tree(self, manifest: Manifest, *, going_on: GoingOn = go_on) -> None:
        """Hash what a release's tree has of its own, from the disk. A damaged file goes to quarantine.

        That is no loss: the tree is made anew when it is asked for.

        Raises:
            LocalStoreError: the disk failed.
        """
        with self._base.disk.errors(f"verifying the tree of {manifest.ref}"):
            self._trees.scrub(manifest, going_on)

    def _layout(self, manifest: Manifest) -> Layout:
        with self._base.disk.errors(f"reading the layout of {manifest.ref}"):
            layout = self._releases.layout(manifest.ref)
        if layout is None:
            raise BlobMissingError(f"{manifest.ref} is not kept here; sync it first")
        return layout

    def _require(self, manifest: Manifest, layout: Layout) -> None:
        if lacking := self.lacks(manifest, layout):
            raise BlobMissingError(
                f"{manifest.ref} lacks {len(lacking.artifacts)} of {len(manifest.artifacts)} files here, in "
                f"{len(lacking.objects)} objects such as {lacking.objects[0].name}; sync it first"
            )
