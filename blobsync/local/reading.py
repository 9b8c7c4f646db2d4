"""Files of a release without a tree."""

from __future__ import annotations

import os
from collections.abc import Iterator

from blobsync.errors import BlobMissingError, ReleaseAbsentError
from blobsync.local import tree_parts
from blobsync.local.disk import opened
from blobsync.local.objects import ObjectFiles
from blobsync.local.releases import KeptRelease
from blobsync.release.blob import Blob

_PIECE_BYTES = 1 << 20


def read(objects: ObjectFiles, kept: KeptRelease, path: str) -> Iterator[bytes]:
    """See `blobsync.LocalStore.read`. OSError passes through."""
    manifest = kept.manifest
    blob = next((item.blob for item in manifest.artifacts if item.path == path), None)
    if blob is None:
        raise ReleaseAbsentError(f"{manifest.ref} has no file {path[:200]!r}")
    if not blob.is_packed:
        yield from _pieces(objects, blob)
        return
    packs = [pack for pack in kept.layout.packs if objects.has(pack)]
    for _, data in tree_parts.packed(objects, packs, {blob.sha256}):
        for start in range(0, len(data), _PIECE_BYTES):
            yield bytes(data[start : start + _PIECE_BYTES])
        return
    raise BlobMissingError(f"{path} of {manifest.ref} is not here any more; sync the release again")


def _pieces(objects: ObjectFiles, blob: Blob) -> Iterator[bytes]:
    if not objects.sound(blob):
        raise BlobMissingError(f"blob {blob.name} is not here any more; sync the release again")
    with opened(objects.path(blob)) as fd:
        at = 0
        while piece := os.pread(fd, _PIECE_BYTES, at):
            at += len(piece)
            yield piece
