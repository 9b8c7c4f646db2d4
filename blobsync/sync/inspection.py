"""Finds out what a release consists of, and what of it is not here. Called on any thread; blocks."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.releases import fetch_layout, fetch_manifest
from blobsync.errors import BlobMissingError, InvalidLayoutError, InvalidManifestError
from blobsync.local.objects import MissingObjects
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


def inspect(store: ObjectStore, local: LocalStore, job: Look) -> Inspection:
    """Find out what a release lacks here. A release that lacks nothing is kept, and so complete.

    The caller protects it from collection before, so what is found here stays.

    Args:
        store: For what is not known here.
        local: Where releases are kept.
        job: Which release.

    Raises:
        BlobSyncError: as of `fetch_manifest`, `fetch_layout` and `LocalStore`.
    """
    found = job.known if job.known is not None else local.kept(job.ref)
    if found is not None and not job.fresh_layout:
        try:
            return _inspection(local, found, asked_store=False)
        except InvalidLayoutError:  # the packs it names are here, and not enough
            pass
        except BlobMissingError:  # its manifest was damaged
            found = None
    manifest = _manifest(store, job.ref, found)
    layout = fetch_layout(store, job.ref.name, job.ref.digest)
    return _inspection(local, Release(manifest, layout), asked_store=True)


def _manifest(store: ObjectStore, ref: ReleaseRef, found: Release | None) -> Manifest:
    with contextlib.suppress(BlobMissingError):
        if found is not None:
            return found.manifest
    return fetch_manifest(store, ref.name, ref.digest)


def _inspection(local: LocalStore, found: Release, *, asked_store: bool) -> Inspection:
    missing = local.keep(found)
    if missing.artifacts and not missing.objects:
        raise InvalidManifestError(
            f"{found.ref} names {missing.artifacts[0].path} with another size than the same content "
            f"has elsewhere; publish it again"
        )
    if not missing and not found.is_recorded:
        found = local.kept(found.ref) or found  # needs no manifest in memory
    return Inspection(found, missing, asked_store)
