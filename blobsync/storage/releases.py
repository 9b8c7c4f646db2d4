"""Releases in the object store: reading and listing them."""

from __future__ import annotations

import hashlib

from blobsync.errors import BlobSyncConfigError, CorruptBlobError, InvalidManifestError
from blobsync.names import is_digest, is_release_name
from blobsync.release.manifest import MAX_MANIFEST_BYTES, Manifest
from blobsync.storage import keys
from blobsync.storage.ports import ObjectStore


def fetch_manifest(store: ObjectStore, name: str, digest: str) -> Manifest:
    """Read a release's manifest and verify it. One try; callers retry what may heal.

    Raises:
        BlobNotFoundError: there is no such release.
        CorruptBlobError: its bytes are not those its digest names.
        InvalidManifestError: they are, and must not be followed.
        StoreUnavailableError, StoreAccessDeniedError, BucketMissingError: as of `ObjectStore`.
    """
    _check_ref(name, digest)
    data = bytearray()
    for chunk in store.read(keys.manifest(name, digest)):
        data += chunk
        if len(data) > MAX_MANIFEST_BYTES:
            raise CorruptBlobError(
                f"manifest {digest} of {name} is above {MAX_MANIFEST_BYTES} bytes; not read"
            )
    return verified_manifest(bytes(data), name, digest)


def verified_manifest(data: bytes, name: str, digest: str) -> Manifest:
    """Parse `data` as the manifest that `name` and `digest` promise.

    Raises:
        CorruptBlobError: other bytes than the digest names.
        InvalidManifestError: malformed, or of another name.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != digest:
        raise CorruptBlobError(
            f"manifest {digest} of {name} has the digest {found}; publish the release again to repair it"
        )
    manifest = Manifest.parse(data)
    if manifest.name != name:
        raise InvalidManifestError(f"manifest {digest} is one of {manifest.name}, not of {name}")
    return manifest


def list_releases(store: ObjectStore, name: str) -> list[str]:
    """Digests of all releases of `name`, sorted. Order says nothing of age.

    Raises:
        BlobSyncError: as of `ObjectStore.list`.
    """
    if not is_release_name(name):
        raise BlobSyncConfigError(f"{name[:200]!r} cannot name a release")
    prefix = keys.manifests(name)
    found = (info.key.removeprefix(prefix).removesuffix(".json") for info in store.list(prefix))
    return sorted(digest for digest in found if is_digest(digest))


def _check_ref(name: str, digest: str) -> None:
    if not is_release_name(name) or not is_digest(digest):
        raise InvalidManifestError(f"{name[:200]!r} with digest {digest[:80]!r} names no release")
