"""Reads verified files from packs and blobs: one file for a reader, many for a tree."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from blobsync.bucket.verification import read_table, verify_pack_bytes
from blobsync.errors import BlobMissingError, CorruptPackError, ReleaseAbsentError
from blobsync.local.disk import FileReader, opened
from blobsync.local.objects import ObjectFiles
from blobsync.local.releases import Release
from blobsync.release.blob import Blob
from blobsync.release.layout import Pack
from blobsync.release.pack import Frame, FrameReader, PackTable, members_of

_PIECE_BYTES = 1 << 20
_WHOLE_PACK_SHARE = 0.25
"""When more of a pack's stored bytes is needed, the pack is hashed as a whole, which is the cheaper way."""
_HELPER_FROM_FRAMES = 2


def read(objects: ObjectFiles, kept: Release, path: str) -> Iterator[bytes]:
    """See `blobsync.LocalStore.read`. OSError passes through."""
    manifest = kept.manifest
    blob = next((item.blob for item in manifest.artifacts if item.path == path), None)
    if blob is None:
        raise ReleaseAbsentError(f"{manifest.ref} has no file {path[:200]!r}")
    if not blob.is_packed:
        yield from _pieces(objects, blob)
        return
    packs = [pack for pack in kept.layout.packs if objects.has(pack)]
    for _, data in packed(objects, packs, {blob.sha256}):
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


def packed(objects: ObjectFiles, packs: Iterable[Pack], wanted: set[str]) -> Iterator[tuple[str, memoryview]]:
    """Give the wanted blobs, by SHA-256, each once, verified now; only the frames that have them are read.

    Args:
        objects: Where the packs are.
        packs: Verified ones.
        wanted: SHA-256 digests. Those given are taken out.

    Raises:
        CorruptPackError: a pack was damaged since it was verified.
        OSError: the disk failed, or a pack is gone.
    """
    for pack in packs:
        if not wanted:
            return
        with opened(objects.path(pack)) as fd:
            table = read_table(FileReader(fd).whole, os.fstat(fd).st_size)
            frames = _frames_with(table, wanted)
            needed = sum(frame.stored_bytes for frame in frames)
            whole = needed > _WHOLE_PACK_SHARE * pack.size_bytes
            if whole:  # its members were verified once, so they are still what the table says
                verify_pack_bytes(FileReader(fd), pack)
            for frame, raw in _read_ahead(fd, frames):
                for sha256, data in members_of(table, frame, raw):
                    if sha256 in wanted:
                        if not whole and hashlib.sha256(data).hexdigest() != sha256:
                            raise CorruptPackError(
                                f"pack {pack.name} was damaged: member {sha256} is another"
                            )
                        wanted.discard(sha256)
                        yield sha256, data


def _frames_with(table: PackTable, wanted: set[str]) -> list[Frame]:
    return [
        frame
        for frame in table.frames
        if not wanted.isdisjoint(table.sha256s[frame.first_member : frame.first_member + frame.member_count])
    ]


def _read_ahead(fd: int, frames: list[Frame]) -> Iterator[tuple[Frame, bytes | memoryview]]:
    """Frames in order; the next is decompressed on a second thread while one is used."""
    stored, frame_reader = FileReader(fd), FrameReader()

    def raw_of(frame: Frame) -> bytes | memoryview:
        return frame_reader.raw(frame, stored.whole(frame.start, frame.stored_bytes))

    if len(frames) < _HELPER_FROM_FRAMES or not any(frame.is_zstd for frame in frames):
        for frame in frames:
            yield frame, raw_of(frame)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="blobsync-frames") as helper:
        ahead = deque[tuple[Frame, Future[bytes | memoryview]]]()
        for frame in frames:
            ahead.append((frame, helper.submit(raw_of, frame)))
            if len(ahead) > 1:
                ready, raw = ahead.popleft()
                yield ready, raw.result()
        for ready, raw in ahead:
            yield ready, raw.result()
