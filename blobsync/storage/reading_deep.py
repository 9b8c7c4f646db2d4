"""Whether objects of a bucket have the bytes that their names say."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from blake3 import blake3

from blobsync.errors import CorruptBlobError
from blobsync.release.blob import CHUNK_BYTES, Blob
from blobsync.release.layout import Pack
from blobsync.release.pack import FrameReader, PackTable, check_members, parse_table
from blobsync.storage.ports import GoingOn


def verify_blob(blob: Blob, read: Callable[[int, int], bytes], going_on: GoingOn) -> None:
    """Hash a large file, a chunk at a time.

    Raises:
        CorruptBlobError: it has other bytes than its name says.
    """
    whole = hashlib.sha256()
    for number, start in enumerate(range(0, blob.size_bytes, CHUNK_BYTES)):
        data = read(start, min(CHUNK_BYTES, blob.size_bytes - start))
        whole.update(data)
        if blob.chunks and blake3(data).hexdigest() != blob.chunks[number]:
            raise CorruptBlobError(f"it has other bytes in the {CHUNK_BYTES} from {start} on")
        going_on(len(data))
    if whole.hexdigest() != blob.sha256:
        raise CorruptBlobError(f"it has SHA-256 {whole.hexdigest()}")


def verified_pack(pack: Pack, read: Callable[[int, int], bytes], going_on: GoingOn) -> PackTable:
    """Hash a pack, and each of its members. At most 64 MiB are in memory.

    Raises:
        CorruptBlobError: it has other bytes than its name says.
        InvalidPackError: it was made wrong.
    """
    data = read(0, pack.size_bytes)
    if blake3(data).hexdigest() != pack.name:
        raise CorruptBlobError(f"it has BLAKE3 {blake3(data).hexdigest()}")
    table, reader, view = parse_table(len(data), data), FrameReader(), memoryview(data)
    for frame in table.frames:
        check_members(table, frame, reader.raw(frame, view[frame.start : frame.start + frame.stored_bytes]))
    going_on(pack.size_bytes)
    return table
