"""Where the bytes of a tree come from: frames of packs, large blobs, and files of other trees. No policy."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from blobsync.errors import CorruptPackError
from blobsync.local.disk import FileIdentity, identity, opened
from blobsync.local.objects import ObjectFiles
from blobsync.local.verification import read_frame, verify_pack_bytes
from blobsync.release.layout import Pack
from blobsync.release.pack import Frame, FrameReader, PackTable, members_of

_WHOLE_PACK_SHARE = 0.25
"""When more of a pack's stored bytes is needed, the pack is hashed as a whole, which is the cheaper way."""
_HELPER_FROM_FRAMES = 2


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
            table = objects.tables.of_open(pack.name, fd)
            frames = _frames_with(table, wanted)
            needed = sum(frame.stored_bytes for frame in frames)
            whole = needed > _WHOLE_PACK_SHARE * pack.size_bytes
            if whole:  # its members were verified once, so they are still what the table says
                verify_pack_bytes(fd, pack)
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
    reader = FrameReader()
    if len(frames) < _HELPER_FROM_FRAMES or not any(frame.is_zstd for frame in frames):
        for frame in frames:
            yield frame, read_frame(fd, frame, reader)
        return
    with ThreadPoolExecutor(1, thread_name_prefix="blobsync-frames") as helper:
        ahead = deque[tuple[Frame, Future[bytes | memoryview]]]()
        for frame in frames:
            ahead.append((frame, helper.submit(read_frame, fd, frame, reader)))
            if len(ahead) > 1:
                ready, raw = ahead.popleft()
                yield ready, raw.result()
        for ready, raw in ahead:
            yield ready, raw.result()


def write_new(folder: int, path: str, data: memoryview, mode: int) -> FileIdentity:
    """Write a small file that is not there yet, below an open folder. Not durable by itself."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, mode, dir_fd=folder)
    try:
        left = data
        while left:
            left = left[os.write(fd, left) :]
        found = os.fstat(fd)
        if found.st_mode & 0o777 != mode:  # a umask
            os.fchmod(fd, mode)
        return identity(found)
    finally:
        os.close(fd)


def link(source: str, source_folder: int | None, path: str, folder: int) -> os.stat_result | None:
    """Hard-link a file to a path below an open folder; None: it is gone, or cannot have one more link."""
    try:
        os.link(source, path, src_dir_fd=source_folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    return os.stat(path, dir_fd=folder, follow_symlinks=False)


def copy_blob(fd: int, target: str, mode: int) -> FileIdentity:
    """Copy a large file. Not durable by itself."""
    with contextlib.closing(os.fdopen(os.dup(fd), "rb")) as source:
        new = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with os.fdopen(new, "wb") as file:
            source.seek(0)
            shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fchmod(new, mode)
            return identity(os.fstat(new))
