"""Reading one file of a release out of the bucket, without a local store. Verified."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from blake3 import blake3

from blobsync.errors import CorruptBlobError, InvalidLayoutError, ReleaseAbsentError
from blobsync.release.blob import CHUNK_BYTES, Blob
from blobsync.release.layout import Layout, Pack
from blobsync.release.manifest import Manifest
from blobsync.release.pack import MIN_PACK_BYTES, FrameReader, PackTable, members_of, parse_table, tail_bytes
from blobsync.storage import keys
from blobsync.storage.ports import ObjectStore

_TAIL_BYTES = 64 << 10
"""Asked for first: the tables of most packs fit."""


def read_file(store: ObjectStore, manifest: Manifest, layout: Layout, path: str) -> Iterator[bytes]:
    """Stream the file `path`, in pieces of up to 16 MiB, each verified before it is given.

    Raises:
        ReleaseAbsentError: The release has no such file.
        InvalidLayoutError: No pack has it.
        CorruptBlobError: The bucket has other bytes than the manifest names.
        BlobSyncError: As of `ObjectStore.read`.
    """
    blob = next((item.blob for item in manifest.artifacts if item.path == path), None)
    if blob is None:
        raise ReleaseAbsentError(f"{manifest.ref} has no file {path!r}; `ls` lists what it has")
    if blob.is_packed:
        yield _packed(store, layout, blob)
    else:
        yield from _alone(store, blob)


def read_table(store: ObjectStore, pack: Pack) -> PackTable:
    """The tables of a pack in the bucket, unverified.

    Raises:
        InvalidPackError: It is none.
        BlobSyncError: As of `ObjectStore.read`.
    """
    tail = _range(store, keys.pack(pack.name), max(0, pack.size_bytes - _TAIL_BYTES), pack.size_bytes)
    wanted = tail_bytes(pack.size_bytes, tail[-MIN_PACK_BYTES:])
    if wanted > len(tail):
        tail = _range(store, keys.pack(pack.name), pack.size_bytes - wanted, pack.size_bytes)
    return parse_table(pack.size_bytes, tail)


def _packed(store: ObjectStore, layout: Layout, blob: Blob) -> bytes:
    for pack in layout.packs:
        table = read_table(store, pack)
        if blob.sha256 not in table.sha256s:
            continue
        index = table.sha256s.index(blob.sha256)
        frame = next(
            frame
            for frame in table.frames
            if frame.first_member <= index < frame.first_member + frame.member_count
        )
        stored = _range(store, keys.pack(pack.name), frame.start, frame.start + frame.stored_bytes)
        members = dict(members_of(table, frame, FrameReader().raw(frame, stored)))
        data = bytes(members[blob.sha256])
        _require(hashlib.sha256(data).hexdigest() == blob.sha256, blob)
        return data
    raise InvalidLayoutError(f"no pack of the layout has blob {blob.sha256}; publish the release again")


def _alone(store: ObjectStore, blob: Blob) -> Iterator[bytes]:
    key = keys.blob(blob.name)
    if not blob.chunks:
        data = _range(store, key, 0, blob.size_bytes)
        _require(hashlib.sha256(data).hexdigest() == blob.sha256, blob)
        yield data
    for number, digest in enumerate(blob.chunks):
        start = number * CHUNK_BYTES
        data = _range(store, key, start, min(start + CHUNK_BYTES, blob.size_bytes))
        _require(blake3(data).hexdigest() == digest, blob)
        yield data


def _require(right: bool, blob: Blob) -> None:
    if not right:
        raise CorruptBlobError(
            f"blob {blob.name} has other bytes in the bucket than its name says; publish the release again "
            f"with repair"
        )


def _range(store: ObjectStore, key: str, start: int, end: int) -> bytes:
    return b"".join(store.read(key, start=start, size_bytes=end - start))
