"""Takes files out of verified packs and large blobs. Thread-safe."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from blobsync.bucket.verification import read_table, verify_pack_bytes
from blobsync.errors import BlobMissingError, CorruptPackError, InvalidPackError, ReleaseAbsentError
from blobsync.local.disk import FileReader
from blobsync.local.objects import ObjectFiles
from blobsync.release.layout import Layout, Pack
from blobsync.release.manifest import Blob, Manifest
from blobsync.release.pack import FrameReader, PackFrame, members_of

_PIECE_BYTES = 1 << 20
_WHOLE_PACK_SHARE = 0.25
"""If more than this share of a pack's stored bytes is needed, the whole pack is hashed, which is cheaper."""
_HELPER_FROM_FRAMES = 2


def read_file(objects: ObjectFiles, manifest: Manifest, layout: Layout, path: str) -> Iterator[bytes]:
    """See `blobsync.LocalStore.read`. OSError passes through."""
    blob = next((item.blob for item in manifest.artifacts if item.path == path), None)
    if blob is None:
        raise ReleaseAbsentError(f"{manifest.ref} has no file {path[:200]!r}")
    if not blob.is_packed:
        yield from pieces(objects, blob)
        return
    packs = [pack for pack in layout.packs if objects.has(pack)]
    for _, data in packed(objects, packs, {blob.sha256}):
        for start in range(0, len(data), _PIECE_BYTES):
            yield bytes(data[start : start + _PIECE_BYTES])
        return
    raise BlobMissingError(f"{path} of {manifest.ref} is not here any more; sync the release again")


def pieces(objects: ObjectFiles, blob: Blob) -> Iterator[bytes]:
    """Yield a large blob. It is not hashed if it was verified before.

    BlobMissingError if it is not here any more, or cannot be read.
    """
    if not objects.sound(blob):
        raise BlobMissingError(f"blob {blob.name} is not here any more; sync the release again")
    with objects.base.reading(objects.path(blob)) as fd:
        at = 0
        while piece := os.pread(fd, _PIECE_BYTES, at):
            at += len(piece)
            yield piece


def packed(objects: ObjectFiles, packs: Iterable[Pack], wanted: set[str]) -> Iterator[tuple[str, memoryview]]:
    """Yield the wanted blobs with their SHA-256, each once and verified now. Reads only the needed frames.

    Removes each digest from `wanted` when its blob is yielded. BlobMissingError if a pack does not exist any
    more, or cannot be read.

    Raises:
        CorruptPackError, InvalidPackError: a pack was damaged since it was verified. It is in quarantine now.
    """
    for pack in packs:
        if not wanted:
            return
        try:
            yield from _members(objects, pack, wanted)
        except (CorruptPackError, InvalidPackError):
            objects.check(pack)
            raise


def _members(objects: ObjectFiles, pack: Pack, wanted: set[str]) -> Iterator[tuple[str, memoryview]]:
    with objects.base.reading(objects.path(pack)) as fd:
        table = read_table(FileReader(fd).whole, os.fstat(fd).st_size)
        frames = table.frames_with(wanted)
        needed = sum(frame.stored_bytes for frame in frames)
        whole = needed > _WHOLE_PACK_SHARE * pack.size_bytes
        if whole:  # its members were verified before; if the bytes are the same, so are the members
            verify_pack_bytes(FileReader(fd), pack)
        for frame, raw in _read_ahead(fd, frames):
            for sha256, data in members_of(table, frame, raw):
                if sha256 in wanted:
                    if not whole and hashlib.sha256(data).hexdigest() != sha256:
                        raise CorruptPackError(f"pack {pack.name} was damaged: member {sha256} is another")
                    wanted.discard(sha256)
                    yield sha256, data


def _read_ahead(fd: int, frames: list[PackFrame]) -> Iterator[tuple[PackFrame, bytes | memoryview]]:
    """Yield frames in order. While one is used, the next is decompressed on a second thread."""
    stored, frame_reader = FileReader(fd), FrameReader()

    def raw_of(frame: PackFrame) -> bytes | memoryview:
        return frame_reader.raw(frame, stored.whole(frame.start, frame.stored_bytes))

    if len(frames) < _HELPER_FROM_FRAMES or not any(frame.is_zstd for frame in frames):
        for frame in frames:
            yield frame, raw_of(frame)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="blobsync-frames") as helper:
        ahead = deque[tuple[PackFrame, Future[bytes | memoryview]]]()
        for frame in frames:
            ahead.append((frame, helper.submit(raw_of, frame)))
            if len(ahead) > 1:
                ready, raw = ahead.popleft()
                yield ready, raw.result()
        for ready, raw in ahead:
            yield ready, raw.result()
