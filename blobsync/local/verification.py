"""Whether an object's bytes are what its name says. Reads through a descriptor; called on any thread.

Files are read into buffers, not mapped: a mapped file on a bad sector, or cut by somebody, kills the process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from blake3 import blake3

from blobsync.errors import CorruptBlobError, CorruptPackError
from blobsync.release.blob import CHUNK_BYTES, Blob
from blobsync.release.layout import Pack
from blobsync.release.objects import StoredObject
from blobsync.release.pack import (
    MIN_PACK_BYTES,
    Frame,
    FrameReader,
    PackTable,
    check_members,
    parse_table,
    tail_bytes,
)
from blobsync.storage.ports import GoingOn, go_on

_BUFFER_BYTES = 1 << 20
_TWO_THREADS_FROM_BYTES = 8 << 20
_TWO_FRAMES_BYTES = 20 << 20
"""Two frames are hashed at a time if they need no more memory than this."""


class Digest(Protocol):
    """As of `hashlib` and `blake3`."""

    def update(self, data: memoryview, /) -> object:
        """Take the next bytes."""
        ...


def verify_object(
    fd: int, item: StoredObject, *, also_sha256: bool = False, threads: int = 2, going_on: GoingOn = go_on
) -> str | None:
    """Hash an object, and each member if it is a pack.

    Args:
        fd: The file.
        item: What it should be.
        also_sha256: Compute the SHA-256 of a chunked blob too. Its chunks name it, so that is not needed.
        threads: At most, for the members of a pack.
        going_on: See `GoingOn`.

    Returns:
        The SHA-256 of a chunked blob, if asked for. Another one than that of `item` is no damage: the bytes
        are those of the name, and whoever made `item` paired that name with the SHA-256 of other bytes.

    Raises:
        CorruptBlobError: it has other bytes than its name says; for packs, a CorruptPackError.
        InvalidPackError: a pack that was made wrong; the source of it is to blame.
        OSError: the disk failed.
    """
    size = os.fstat(fd).st_size
    if size != item.size_bytes:
        raise _corrupt(item, f"has {size} bytes, not {item.size_bytes}")
    if isinstance(item, Pack):
        verify_pack(fd, item, threads, going_on)
    elif item.chunks:
        whole = hashlib.sha256() if also_sha256 else None
        for number in range(len(item.chunks)):
            verify_chunk(fd, item, number, whole, going_on)
        return None if whole is None else whole.hexdigest()
    else:
        digest = hashlib.sha256()
        hash_range(fd, 0, size, going_on, digest)
        if digest.hexdigest() != item.sha256:
            raise _corrupt(item, f"has SHA-256 {digest.hexdigest()}")
    return None


def verify_chunk(fd: int, blob: Blob, number: int, whole: Digest | None, going_on: GoingOn = go_on) -> None:
    """Hash one chunk of a blob, and feed `whole` with it.

    Raises:
        CorruptBlobError: it has other bytes.
    """
    digest, start = blake3(), number * CHUNK_BYTES
    size = min(CHUNK_BYTES, blob.size_bytes - start)
    hash_range(fd, start, size, going_on, *([digest] if whole is None else [digest, whole]))
    if digest.hexdigest() != blob.chunks[number]:
        raise _corrupt(blob, f"has other bytes in the {CHUNK_BYTES} from {start} on")


def verify_pack(fd: int, pack: Pack, threads: int = 2, going_on: GoingOn = go_on) -> None:
    """Hash a pack as a whole first, so that what then is wrong inside was made wrong; then each member.

    Raises:
        CorruptPackError: other bytes than its name, or those of a member, say.
        InvalidPackError: its tables contradict themselves.
    """
    verify_pack_bytes(fd, pack, going_on)
    _verify_members(fd, read_table(fd, pack.size_bytes), threads, going_on)


def verify_pack_bytes(fd: int, pack: Pack, going_on: GoingOn = go_on) -> None:
    """Hash a pack as a whole. Enough for one whose members were verified once.

    Raises:
        CorruptPackError: other bytes than its name says.
    """
    digest = blake3()
    hash_range(fd, 0, pack.size_bytes, going_on, digest)
    if digest.hexdigest() != pack.name:
        raise _corrupt(pack, f"has BLAKE3 {digest.hexdigest()}")


def hash_range(fd: int, start: int, size_bytes: int, going_on: GoingOn, *digests: Digest) -> None:
    """Feed digests with a range of a file. Short, if the file is.

    Raises:
        OSError: the disk failed.
    """
    buffer = bytearray(min(_BUFFER_BYTES, size_bytes))
    view, at, end = memoryview(buffer), start, start + size_bytes
    while at < end:
        got = os.preadv(fd, [view[: end - at]], at)
        if not got:
            return
        for digest in digests:
            digest.update(view[:got])
        at += got
        going_on(got)


def read_table(fd: int, size_bytes: int) -> PackTable:
    """The tables of a pack.

    Raises:
        InvalidPackError: they contradict themselves.
    """
    footer = os.pread(fd, MIN_PACK_BYTES, max(0, size_bytes - MIN_PACK_BYTES))
    wanted = tail_bytes(size_bytes, footer)
    return parse_table(size_bytes, os.pread(fd, wanted, size_bytes - wanted))


def read_frame(fd: int, frame: Frame, reader: FrameReader) -> bytes | memoryview:
    """The raw bytes of a frame.

    Raises:
        CorruptPackError: they are not those of such a frame.
    """
    return reader.raw(frame, os.pread(fd, frame.stored_bytes, frame.start))


def _corrupt(item: StoredObject, what: str) -> CorruptBlobError:
    kind = CorruptPackError if isinstance(item, Pack) else CorruptBlobError
    noun = "pack" if isinstance(item, Pack) else "blob"
    return kind(f"{noun} {item.name} {what}; it does not count. If it stays so, publish the release again")


def _verify_members(fd: int, table: PackTable, threads: int, going_on: GoingOn) -> None:
    """Frame by frame, on two threads if that is worth it: hashes and zstd let go of the interpreter."""
    frames = iter(table.frames)
    lock, failures = threading.Lock(), list[BaseException]()

    def work(tick: Callable[[], None]) -> None:
        reader = FrameReader()
        for frame in _taking(frames, lock, failures):
            check_members(table, frame, read_frame(fd, frame, reader))
            tick()

    def help_out() -> None:
        try:
            work(lambda: None)
        except BaseException as exc:  # noqa: BLE001 - it is raised by the thread that waits for this one
            failures.append(exc)

    with _helper(help_out, failures) if threads > 1 and _worth_two(table) else contextlib.nullcontext():
        work(lambda: going_on(0))
    if failures:
        raise failures[0]


def _taking(frames: Iterator[Frame], lock: threading.Lock, failures: list[BaseException]) -> Iterator[Frame]:
    while not failures:
        with lock:
            frame = next(frames, None)
        if frame is None:
            return
        yield frame


@contextlib.contextmanager
def _helper(target: Callable[[], None], failures: list[BaseException]) -> Iterator[None]:
    thread = threading.Thread(target=target, name="blobsync-verify", daemon=True)
    thread.start()
    try:
        yield
    except BaseException as exc:
        failures.append(exc)  # so that the helper stops
        raise
    finally:
        thread.join()


def _worth_two(table: PackTable) -> bool:
    needs = [frame.stored_bytes + (frame.raw_bytes if frame.is_zstd else 0) for frame in table.frames]
    return (
        len(needs) > 1
        and table.raw_bytes >= _TWO_THREADS_FROM_BYTES
        and 2 * max(needs) <= _TWO_FRAMES_BYTES
        and (os.cpu_count() or 1) > 1
    )
