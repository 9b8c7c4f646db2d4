"""Reading one file of a release out of the bucket, without a local store. Verified."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import partial

from blake3 import blake3

from blobsync.errors import CorruptBlobError, InvalidLayoutError, ReleaseAbsentError
from blobsync.release.blob import CHUNK_BYTES, Blob
from blobsync.release.layout import Layout
from blobsync.release.manifest import Manifest
from blobsync.release.pack import FrameReader, PackTable, members_of, parse_table, tail_bytes
from blobsync.storage import keys
from blobsync.storage.ports import ObjectStore

_TAIL_BYTES = 128 << 10
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
    if layout.loose is not None:
        yield from _loose(store, blob, layout.loose + path)
    elif blob.is_packed:
        yield _packed(store, layout, blob)
    else:
        yield from _alone(store, blob, keys.blob(blob.name))


def read_table(size_bytes: int, read: Callable[[int, int], bytes]) -> PackTable:
    """The tables of a pack in the bucket, unverified. One request for most packs, two at most.

    Args:
        size_bytes: Of the pack.
        read: Gives the bytes from a start on, so many; retries what may heal, or not.

    Raises:
        InvalidPackError: It is none.
        BlobSyncError: As `read` does.
    """
    guess = min(_TAIL_BYTES, size_bytes)
    tail = read(size_bytes - guess, guess)
    wanted = tail_bytes(size_bytes, tail)
    if wanted > len(tail):
        tail = read(size_bytes - wanted, wanted)
    return parse_table(size_bytes, tail)


def _packed(store: ObjectStore, layout: Layout, blob: Blob) -> bytes:
    for pack in layout.packs:
        table = read_table(pack.size_bytes, partial(_range, store, keys.pack(pack.name)))
        if blob.sha256 not in table.sha256s:
            continue
        index = table.sha256s.index(blob.sha256)
        frame = next(
            frame
            for frame in table.frames
            if frame.first_member <= index < frame.first_member + frame.member_count
        )
        stored = _range(store, keys.pack(pack.name), frame.start, frame.stored_bytes)
        members = dict(members_of(table, frame, FrameReader().raw(frame, stored)))
        data = bytes(members[blob.sha256])
        _require(hashlib.sha256(data).hexdigest() == blob.sha256, blob)
        return data
    raise InvalidLayoutError(f"no pack of the layout has blob {blob.sha256}; publish the release again")


def _loose(store: ObjectStore, blob: Blob, key: str) -> Iterator[bytes]:
    try:
        yield from _alone(store, blob, key)
    except CorruptBlobError as exc:
        raise CorruptBlobError(
            f"{key} has other bytes than when it was adopted; if they are wanted, adopt its prefix again"
        ) from exc


def _alone(store: ObjectStore, blob: Blob, key: str) -> Iterator[bytes]:
    if not blob.chunks:
        data = _range(store, key, 0, blob.size_bytes)
        _require(hashlib.sha256(data).hexdigest() == blob.sha256, blob)
        yield data
    for number, digest in enumerate(blob.chunks):
        start = number * CHUNK_BYTES
        data = _range(store, key, start, min(CHUNK_BYTES, blob.size_bytes - start))
        _require(blake3(data).hexdigest() == digest, blob)
        yield data


def _require(right: bool, blob: Blob) -> None:
    if not right:
        raise CorruptBlobError(
            f"blob {blob.name} has other bytes in the bucket than its name says; publish the release again "
            f"with repair"
        )


def _range(store: ObjectStore, key: str, start: int, size_bytes: int) -> bytes:
    return b"".join(store.read(key, start=start, size_bytes=size_bytes))
