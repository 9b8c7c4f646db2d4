"""Reading one file of a release out of the bucket, without a local store. Verified."""

from __future__ import annotations

from collections.abc import Iterator

from blobsync.bucket import keys
from blobsync.bucket.ports import ObjectStore
from blobsync.bucket.verification import StoreReader, read_table, verified_pieces
from blobsync.errors import InvalidLayoutError, ReleaseAbsentError
from blobsync.release.blob import Blob
from blobsync.release.layout import Layout
from blobsync.release.manifest import Manifest
from blobsync.release.pack import FrameReader, check_members, members_of


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
        for piece in verified_pieces(StoreReader(store, keys.blob(blob.name)), blob):
            yield bytes(piece)


def _packed(store: ObjectStore, layout: Layout, blob: Blob) -> bytes:
    for pack in layout.packs:
        read = StoreReader(store, keys.pack(pack.name))
        table = read_table(read.whole, pack.size_bytes)
        if blob.sha256 not in table.sha256s:
            continue
        index = table.sha256s.index(blob.sha256)
        frame = next(
            frame
            for frame in table.frames
            if frame.first_member <= index < frame.first_member + frame.member_count
        )
        raw = FrameReader().raw(frame, read.whole(frame.start, frame.stored_bytes))
        check_members(table, frame, raw)
        return bytes(dict(members_of(table, frame, raw))[blob.sha256])
    raise InvalidLayoutError(f"no pack of the layout has blob {blob.sha256}; publish the release again")
