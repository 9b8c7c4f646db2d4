"""Finds out what a release consists of, and what of it is not here. Called on any thread; blocks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.releases import fetch_layout, fetch_manifest
from blobsync.errors import BlobMissingError, InvalidLayoutError, InvalidManifestError
from blobsync.local.missing_objects import MissingObjects
from blobsync.local.releases import Release
from blobsync.local.store import LocalStore
from blobsync.release.manifest import Manifest, ReleaseRef
from blobsync.sync.table import Look


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a look found.

    Attributes:
        known: What the release is.
        missing: What of it is not here; nothing: it is complete, and kept.
        asked_store: Whether the object store was asked, and answered.
    """

    known: Release
    missing: MissingObjects
    asked_store: bool


class ReleaseInspector:
    """Looks. Thread-safe.

    Args:
        store: For what is not known here.
        local: Where releases are kept.
    """

    def __init__(self, store: ObjectStore, local: LocalStore) -> None:
        self._store = store
        self._local = local

    def look(self, job: Look) -> Inspection:
        """Find out what a release lacks here. When nothing, it is kept, and so complete.

        It was protected from collection before, so what is found stays.

        Raises:
            BlobSyncError: as of `fetch_manifest`, `fetch_layout` and `LocalStore`.
        """
        found = job.known if job.known is not None else self._local.kept(job.ref)
        if found is not None and not job.fresh_layout:
            try:
                return self._inspection(found, asked_store=False)
            except InvalidLayoutError:  # the packs it names are here, and not enough
                pass
            except BlobMissingError:  # its manifest was damaged
                found = None
        manifest = self._manifest(job.ref, found)
        layout = fetch_layout(self._store, job.ref.name, job.ref.digest)
        return self._inspection(Release(manifest, layout), asked_store=True)

    def is_here(self, ref: ReleaseRef) -> bool:
        """Tell whether a release is complete here, without the object store.

        Raises:
            LocalStoreError: the disk does not say.
        """
        found = self._local.kept(ref)
        try:
            return found is not None and not self._local.missing(found)
        except (BlobMissingError, InvalidLayoutError, InvalidManifestError):
            return False

    def _manifest(self, ref: ReleaseRef, found: Release | None) -> Manifest:
        with contextlib.suppress(BlobMissingError):
            if found is not None:
                return found.manifest
        return fetch_manifest(self._store, ref.name, ref.digest)

    def _inspection(self, found: Release, *, asked_store: bool) -> Inspection:
        missing = self._local.keep(found)
        if missing.artifacts and not missing.objects:
            raise InvalidManifestError(
                f"{found.ref} names {missing.artifacts[0].path} with another size than the same content "
                f"has elsewhere; publish it again"
            )
        if not missing and not found.is_recorded:
            found = self._local.kept(found.ref) or found  # needs no manifest in memory
        return Inspection(found, missing, asked_store)
