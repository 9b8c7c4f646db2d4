"""Reading what the kept releases need. What cannot be read is not guessed: then nothing is deleted.

Threads: `THREADS` called `blobsync-collect-…` read manifests and layouts; they end with the call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from blobsync.collection.access import Access
from blobsync.collection.inventory import Inventory, Kind
from blobsync.collection.progress import CollectionPhase
from blobsync.collection.roots import ROOT_REASONS, Reason
from blobsync.errors import (
    BlobNotFoundError,
    CorruptBlobError,
    GcRefusedError,
    InvalidLayoutError,
    InvalidManifestError,
)
from blobsync.log import Log
from blobsync.release.layout import Layout
from blobsync.release.manifest import ReleaseRef
from blobsync.storage import keys
from blobsync.storage.ports import ObjectStore
from blobsync.storage.releases import fetch_layout, fetch_manifest

THREADS = 8
_log = Log(__name__)
_UNREADABLE = (BlobNotFoundError, CorruptBlobError, InvalidLayoutError, InvalidManifestError)


@dataclass(frozen=True, slots=True)
class _Content:
    """What a manifest needs. Manifests are named by their content, so this never changes."""

    large: frozenset[str]
    """Keys of the blobs that travel alone."""
    has_small: bool


class Reach:
    """Finds what releases need. Remembers manifests between two looks, but reads each layout anew.

    Args:
        access: The store.
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._contents: dict[ReleaseRef, _Content] = {}

    def needed(
        self, roots: Mapping[ReleaseRef, Reason], found: Inventory, going: Callable[[], None]
    ) -> dict[str, Reason]:
        """Keys of all that these releases need, each with the first reason.

        Args:
            roots: What is kept.
            found: What is in the store.
            going: Called again and again; what it raises passes through.

        Raises:
            GcRefusedError: the manifest or layout of one of them is missing or damaged. But one that nobody
                wants by name, and that is not visible any more, needs nothing.
            BlobSyncError: as of `ObjectStore`.
        """
        needed: dict[str, Reason] = {}
        first = {reason: place for place, reason in enumerate(ROOT_REASONS)}
        ordered = sorted(roots, key=lambda ref: (first[roots[ref]], ref.name, ref.digest))

        def read(ref: ReleaseRef) -> frozenset[str]:
            try:
                return self.of(ref)
            except GcRefusedError:
                if roots[ref] is Reason.WANTED or self._is_visible(ref):
                    raise
                return frozenset()  # another collection has deleted it since the listing

        with closing(_side_by_side(read, ordered)) as parts:
            for done, (ref, own) in enumerate(parts):
                going()
                self._access.tell(CollectionPhase.READING, done + 1, len(ordered))
                for key in own:
                    needed.setdefault(key, roots[ref])
        for entry in found.of_kind(Kind.HISTORY):
            if entry.ref is not None and entry.ref in roots:
                needed.setdefault(entry.info.key, roots[entry.ref])
        return needed

    def fading(self, refs: Sequence[ReleaseRef], going: Callable[[], None]) -> frozenset[str]:
        """Keys of all that releases need which are on their way out. Of one that cannot be read, nothing.

        Raises:
            BlobSyncError: as of `ObjectStore`.
        """

        def own(ref: ReleaseRef) -> frozenset[str]:
            try:
                return self._of(ref)
            except _UNREADABLE as exc:
                _log.warning("collection_cannot_read_release", release=str(ref), error=str(exc))
                return frozenset()

        found: set[str] = set()
        with closing(_side_by_side(own, refs)) as parts:
            for _, part in parts:
                going()
                found |= part
        return frozenset(found)

    def of(self, ref: ReleaseRef) -> frozenset[str]:
        """Keys of manifest, layout, packs and large blobs of a release.

        Raises:
            GcRefusedError: its manifest or layout is missing or damaged.
            BlobSyncError: as of `ObjectStore`.
        """
        try:
            return self._of(ref)
        except _UNREADABLE as exc:
            raise GcRefusedError(
                f"what release {ref.name}@{ref.digest} needs cannot be read ({exc}), and it is kept; nothing "
                f"was deleted. Publish it again with `repair`, or leave it out of what is kept"
            ) from exc

    def _is_visible(self, ref: ReleaseRef) -> bool:
        return self._access.written(keys.manifest(ref.name, ref.digest)) is not None

    def _of(self, ref: ReleaseRef) -> frozenset[str]:
        content = self._contents.get(ref)
        if content is None:
            content = self._access.call(partial(_content, ref), "read manifest")
            self._contents[ref] = content
        layout = self._layout(ref, content)
        own = {keys.manifest(ref.name, ref.digest)}
        if layout is not None and layout.loose is not None:  # its files are not ours, and never touched
            return frozenset(own | {keys.layout(ref.name, ref.digest)})
        if layout is not None:
            own |= {keys.layout(ref.name, ref.digest), *(keys.pack(pack.name) for pack in layout.packs)}
        return content.large | own

    def _layout(self, ref: ReleaseRef, content: _Content) -> Layout | None:
        try:
            layout = self._access.call(lambda store: fetch_layout(store, ref.name, ref.digest), "read layout")
        except BlobNotFoundError:
            if content.has_small:
                raise
            return None
        if content.has_small and not layout.packs and layout.loose is None:
            raise InvalidLayoutError(f"the layout of {ref} names no pack, but the release has small files")
        return layout


def _side_by_side(
    read: Callable[[ReleaseRef], frozenset[str]], refs: Sequence[ReleaseRef]
) -> Generator[tuple[ReleaseRef, frozenset[str]], None, None]:
    """Read on several threads; each release with what was read of it, in order."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="blobsync-collect") as pool:
        try:
            yield from zip(refs, pool.map(read, refs), strict=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # after an error, nobody waits for the rest


def lost(access: Access, found: Inventory, needed: Iterable[str], began: datetime) -> list[str]:
    """Of what kept releases need, the keys that are not in the store.

    Args:
        access: The store.
        found: A listing.
        needed: What must be in it, or be newer.
        began: A moment before the listing, by the store's clock.

    Raises:
        GcRefusedError: something was there before the listing and is not in it: so it is not complete.
        BlobSyncError: as of `ObjectStore`.
    """
    unlisted = sorted(set(needed) - found.objects.keys())
    return [key for key in unlisted if not _is_new(access, key, began)]


def refuse_overlooked(access: Access, found: Inventory, began: datetime) -> None:
    """Look for the manifests that the history tells of and the listing does not have.

    Raises:
        GcRefusedError: one is there: so the listing is not complete.
        BlobSyncError: as of `ObjectStore`.
    """
    told = {keys.manifest(item.ref.name, item.ref.digest) for item in found.of_kind(Kind.HISTORY) if item.ref}
    lost(access, found, told, began)


def _is_new(access: Access, key: str, began: datetime) -> bool:
    written = access.written(key)
    if written is not None and written < began:
        raise GcRefusedError(
            f"{key} is in the store, and the listing lacks it; nothing was deleted. Find out with `probe` "
            f"what the server does"
        )
    return written is not None


def _content(ref: ReleaseRef, store: ObjectStore) -> _Content:
    manifest = fetch_manifest(store, ref.name, ref.digest)
    blobs = manifest.blobs.values()
    return _Content(
        frozenset(keys.blob(blob.name) for blob in blobs if not blob.is_packed),
        any(blob.is_packed for blob in blobs),
    )
