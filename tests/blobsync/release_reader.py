"""Reads a release directly from an object store, with every check and without optimisations."""

from __future__ import annotations

import hashlib

from blake3 import blake3

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.releases import fetch_layout, fetch_manifest
from blobsync.release.layout import Layout
from blobsync.release.manifest import Manifest
from blobsync.release.pack import FrameReader, check_members, members_of, parse_table


def read_release(store: ObjectStore, name: str, digest: str) -> dict[str, bytes]:
    """All files of a release, by path, as a sync would deliver them.

    Raises:
        AssertionError: something is missing, or has wrong bytes.
        BlobSyncError: an error of reading or parsing.
    """
    manifest = fetch_manifest(store, name, digest)
    layout = fetch_layout(store, manifest.name, manifest.digest)
    blobs = _packed(store, layout, manifest)
    for blob in manifest.blobs.values():
        if not blob.is_packed:
            blobs[blob.sha256] = b"".join(store.read(keys.blob(blob.name)))
        data = blobs.get(blob.sha256)
        if data is None or hashlib.sha256(data).hexdigest() != blob.sha256:
            raise AssertionError(f"blob {blob.sha256} of {manifest.ref} is missing, or has other bytes")
    return {item.path: blobs[item.sha256] for item in manifest.artifacts}


def _packed(store: ObjectStore, layout: Layout, manifest: Manifest) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for pack in layout.packs:
        data = b"".join(store.read(keys.pack(pack.name)))
        if len(data) != pack.size_bytes or blake3(data).hexdigest() != pack.name:
            raise AssertionError(f"pack {pack.name} of {manifest.ref} has other bytes than it says")
        table, reader = parse_table(len(data), data), FrameReader()
        for frame in table.frames:
            raw = reader.raw(frame, data[frame.start : frame.start + frame.stored_bytes])
            check_members(table, frame, raw)
            found.update((sha256, bytes(member)) for sha256, member in members_of(table, frame, raw))
    return found
