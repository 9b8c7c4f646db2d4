"""Finds the release that a person names: `name@digest`, `name@first-digits`, or `name` for the newest."""

from __future__ import annotations

from collections.abc import Iterable

from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.releases import list_releases, published
from blobsync.errors import BlobSyncConfigError, ReleaseAbsentError
from blobsync.local.releases import Release
from blobsync.local.store import LocalStore
from blobsync.names import is_digest, is_release_name
from blobsync.release.manifest import ReleaseRef


def in_bucket(store: ObjectStore, text: str) -> ReleaseRef:
    """The release that `text` names, in a bucket.

    BlobSyncConfigError if `text` is not valid or fits several releases, ReleaseAbsentError if it fits none.
    """
    name, digits = _parts(text)
    if is_digest(digits):
        return ReleaseRef(name, digits)
    visible = set(list_releases(store, name))
    if not digits:
        newest = next((entry.digest for entry in published(store, name) if entry.digest in visible), None)
        if newest is None:
            raise ReleaseAbsentError(f"nothing is published as {name}; check name, bucket and prefix")
        return ReleaseRef(name, newest)
    return _one(text, name, digits, visible)


def in_store(local: LocalStore, text: str) -> ReleaseRef:
    """The release that `text` names, in a local store. Without digits, the store must have one of the name.

    Raises as `in_bucket` does.
    """
    name, digits = _parts(text)
    if is_digest(digits):
        return ReleaseRef(name, digits)
    return _one(text, name, digits, [ref.digest for ref in local.releases() if ref.name == name])


def kept_in_store(local: LocalStore, ref: ReleaseRef) -> Release:
    """A release that a store keeps. Else ReleaseAbsentError."""
    kept = local.kept(ref)
    if kept is None:
        raise _not_kept(local, ref)
    return kept


def undamaged_in_store(local: LocalStore, ref: ReleaseRef) -> Release | None:
    """A release that a store keeps; None: its manifest or layout is damaged, and was moved to quarantine.

    ReleaseAbsentError if the store does not keep the release.
    """
    if not local.is_listed(ref):
        raise _not_kept(local, ref)
    return local.kept(ref)


def _not_kept(local: LocalStore, ref: ReleaseRef) -> ReleaseAbsentError:
    return ReleaseAbsentError(f"{ref} is not kept in {local.root}; sync it first")


def _parts(text: str) -> tuple[str, str]:
    name, _, digits = text.partition("@")
    if not is_release_name(name) or not set(digits) <= set("0123456789abcdef"):
        raise BlobSyncConfigError(f"{text[:200]!r} names no release; write name, or name@digest")
    return name, digits


def _one(text: str, name: str, digits: str, digests: Iterable[str]) -> ReleaseRef:
    matches = sorted(digest for digest in digests if digest.startswith(digits))
    if not matches:
        raise ReleaseAbsentError(f"there is no release {text}")
    if len(matches) > 1:
        raise BlobSyncConfigError(
            f"{text} may be {', '.join(digest[:12] for digest in matches)}; give more digits"
        )
    return ReleaseRef(name, matches[0])
