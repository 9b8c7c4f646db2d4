"""Finds the objects that releases need. If a kept release cannot be read, nothing is deleted.

Threads: `THREADS` called `blobsync-collect-…` read manifests and layouts; they end with the call.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.releases import fetch_layout, fetch_manifest
from blobsync.collection.decision import ROOT_REASONS, Reason
from blobsync.collection.inventory import CollectionStore, Inventory, Kind
from blobsync.errors import (
    BlobNotFoundError,
    CorruptBlobError,
    GcRefusedError,
    InvalidLayoutError,
    InvalidManifestError,
)
from blobsync.log import LazyLog
from blobsync.progress import WorkPhase
from blobsync.release.layout import Layout
from blobsync.release.manifest import ReleaseRef

THREADS = 8
_log = LazyLog(__name__)
_UNREADABLE = (BlobNotFoundError, CorruptBlobError, InvalidLayoutError, InvalidManifestError)


@dataclass(frozen=True, slots=True)
class _Content:
    """The objects that a manifest needs. They never change, since a manifest is named by its content."""

    large: frozenset[str]
    """Keys of the blobs that are not in packs."""
    has_small: bool


class Reach:
    """Finds the objects that releases need. Keeps manifests between listings, but reads each layout again."""

    def __init__(self, store: CollectionStore) -> None:
        self._store = store
        self._contents: dict[ReleaseRef, _Content] = {}

    def needed(
        self, roots: Mapping[ReleaseRef, Reason], inventory: Inventory, on_progress: Callable[[], None]
    ) -> dict[str, Reason]:
        """Keys of all objects that kept releases need, each with the first reason.

        GcRefusedError if the manifest or layout of one of them is missing or damaged. A release that the
        caller does not name and that is not visible any more needs nothing.
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
                on_progress()
                self._store.tell(WorkPhase.READING, done + 1, len(ordered))
                for key in own:
                    needed.setdefault(key, roots[ref])
        for entry in inventory.of_kind(Kind.HISTORY):
            if entry.ref is not None and entry.ref in roots:
                needed.setdefault(entry.info.key, roots[entry.ref])
        return needed

    def in_grace(self, refs: Sequence[ReleaseRef], on_progress: Callable[[], None]) -> frozenset[str]:
        """Keys of all objects that `releases_in_grace` need. A release that cannot be read needs nothing."""

        def own(ref: ReleaseRef) -> frozenset[str]:
            try:
                return self._of(ref)
            except _UNREADABLE as exc:
                _log.warning("collection_cannot_read_release", release=str(ref), error=str(exc))
                return frozenset()

        keys: set[str] = set()
        with closing(_side_by_side(own, refs)) as parts:
            for _, part in parts:
                on_progress()
                keys |= part
        return frozenset(keys)

    def of(self, ref: ReleaseRef) -> frozenset[str]:
        """Keys of manifest, layout, packs and large blobs of a release.

        GcRefusedError if its manifest or layout is missing or damaged.
        """
        try:
            return self._of(ref)
        except _UNREADABLE as exc:
            raise GcRefusedError(
                f"what release {ref.name}@{ref.digest} needs cannot be read ({exc}), and it is kept; nothing "
                f"was deleted. Publish it again with `repair`, or leave it out of what is kept"
            ) from exc

    def _is_visible(self, ref: ReleaseRef) -> bool:
        return self._store.written(keys.manifest(ref.name, ref.digest)) is not None

    def _of(self, ref: ReleaseRef) -> frozenset[str]:
        content = self._contents.get(ref)
        if content is None:
            content = self._store.call(partial(_content, ref), "read manifest")
            self._contents[ref] = content
        layout = self._layout(ref, content)
        own = {keys.manifest(ref.name, ref.digest)}
        if layout is not None:
            own |= {keys.layout(ref.name, ref.digest), *(keys.pack(pack.name) for pack in layout.packs)}
        return content.large | own

    def _layout(self, ref: ReleaseRef, content: _Content) -> Layout | None:
        try:
            layout = self._store.call(
                lambda objects: fetch_layout(objects, ref.name, ref.digest), "read layout"
            )
        except BlobNotFoundError:
            if content.has_small:
                raise
            return None
        if content.has_small and not layout.packs:
            raise InvalidLayoutError(f"the layout of {ref} names no pack, but the release has small files")
        return layout


def _side_by_side(
    read: Callable[[ReleaseRef], frozenset[str]], refs: Sequence[ReleaseRef]
) -> Generator[tuple[ReleaseRef, frozenset[str]], None, None]:
    """Read on several threads. Yields each release with its keys, in order."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="blobsync-collect") as pool:
        try:
            yield from zip(refs, pool.map(read, refs), strict=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # after an error, the rest is not read


def _content(ref: ReleaseRef, store: ObjectStore) -> _Content:
    manifest = fetch_manifest(store, ref.name, ref.digest)
    blobs = manifest.blobs.values()
    return _Content(
        frozenset(keys.blob(blob.name) for blob in blobs if not blob.is_packed),
        any(blob.is_packed for blob in blobs),
    )
