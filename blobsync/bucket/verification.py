"""Verifies the bytes of an object against its name. Called on any thread.

A `Reader` gives the bytes, so objects on disk, in the bucket and in memory are verified in the same way.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from blake3 import blake3

from blobsync.bucket.ports import ObjectStore, OnProgress, ignore_progress
from blobsync.errors import CorruptBlobError, CorruptPackError
from blobsync.release.layout import Pack, StoredObject
from blobsync.release.manifest import CHUNK_BYTES, Blob
from blobsync.release.pack import FrameReader, PackFrame, PackTable, check_members, parse_table, tail_bytes

_TAIL_BYTES = 128 << 10
"""Read first: the tables of most packs fit."""
_TWO_THREADS_FROM_BYTES = 8 << 20
_TWO_FRAMES_BYTES = 20 << 20
"""Two frames are hashed at a time if they need no more memory than this."""


class Reader(Protocol):
    """The bytes of one object: a file, an object in the bucket, or memory."""

    def pieces(self, start: int, size_bytes: int) -> Iterable[bytes | memoryview]:
        """Yield a range, cut where the object ends. A piece is valid until the next one."""

    def whole(self, start: int, size_bytes: int) -> bytes | memoryview:
        """Read a range of a few MiB at once, cut where the object ends."""


class MemoryReader:
    """Reads an object that is in memory, or the part of it from `start` on."""

    def __init__(self, data: bytes | memoryview, start: int = 0) -> None:
        self._data, self._start = memoryview(data), start

    def pieces(self, start: int, size_bytes: int) -> Iterable[memoryview]:
        """See `Reader`."""
        yield self.whole(start, size_bytes)

    def whole(self, start: int, size_bytes: int) -> memoryview:
        """See `Reader`."""
        at = start - self._start
        return self._data[at : at + size_bytes]


class StoreReader:
    """Reads an object in the bucket. Raises as `ObjectStore.read` does."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self._key = store, key

    def pieces(self, start: int, size_bytes: int) -> Iterable[bytes]:
        """See `Reader`."""
        return self._store.read(self._key, start=start, size_bytes=size_bytes)

    def whole(self, start: int, size_bytes: int) -> bytes:
        """See `Reader`."""
        return b"".join(self.pieces(start, size_bytes))


class Digest(Protocol):
    """A digest of `hashlib` or `blake3`."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Take the next bytes."""


def verify_object(
    read: Reader,
    found_bytes: int,
    item: StoredObject,
    *,
    also_sha256: bool = False,
    threads: int = 2,
    on_progress: OnProgress = ignore_progress,
) -> str | None:
    """Hash an object of `found_bytes`, and each member if it is a pack, on at most `threads`.

    `also_sha256`: compute and return the SHA-256 of a chunked blob too, which its name does not need. If it
    differs from that of `item`, the bytes are not damaged: they match the name, and the manifest pairs that
    name with a wrong SHA-256.

    Raises:
        CorruptBlobError: its bytes do not match its name; for packs, a CorruptPackError.
        InvalidPackError: the pack was made wrong; its publisher is to blame.
    """
    if found_bytes != item.size_bytes:
        raise _corrupt(item, f"has {found_bytes} bytes, not {item.size_bytes}")
    if isinstance(item, Pack):
        verify_pack(read, item, threads, on_progress)
    elif item.chunks:
        whole = hashlib.sha256() if also_sha256 else None
        for number in range(len(item.chunks)):
            verify_chunk(read, item, number, whole, on_progress)
        return None if whole is None else whole.hexdigest()
    else:
        digest = hashlib.sha256()
        hash_range(read, 0, item.size_bytes, on_progress, digest)
        if digest.hexdigest() != item.sha256:
            raise _corrupt(item, f"has SHA-256 {digest.hexdigest()}")
    return None


def verified_pieces(read: Reader, blob: Blob) -> Iterator[bytes | memoryview]:
    """Yield a blob that is not in a pack, in pieces of at most 16 MiB, each verified before.

    CorruptBlobError if one does not match.
    """
    if not blob.chunks:
        data = read.whole(0, blob.size_bytes)
        verify_object(MemoryReader(data), len(data), blob)
        yield data
    for number in range(len(blob.chunks)):
        start = number * CHUNK_BYTES
        data = read.whole(start, min(CHUNK_BYTES, blob.size_bytes - start))
        verify_chunk(MemoryReader(data, start), blob, number, None)
        yield data


def verify_chunk(
    read: Reader, blob: Blob, number: int, whole: Digest | None, on_progress: OnProgress = ignore_progress
) -> None:
    """Verify one chunk of a blob, and update `whole` with it.

    CorruptBlobError if its bytes do not match its digest.
    """
    digest, start = blake3(), number * CHUNK_BYTES
    size = min(CHUNK_BYTES, blob.size_bytes - start)
    hash_range(read, start, size, on_progress, *([digest] if whole is None else [digest, whole]))
    if digest.hexdigest() != blob.chunks[number]:
        raise _corrupt(blob, f"has other bytes in the {CHUNK_BYTES} from {start} on")


def verify_pack(
    read: Reader, pack: Pack, threads: int = 2, on_progress: OnProgress = ignore_progress
) -> None:
    """Verify a pack as a whole, then each member. If only a member is wrong, the pack was made wrong.

    CorruptPackError, or InvalidPackError if its tables contradict themselves.
    """
    verify_pack_bytes(read, pack, on_progress)
    _verify_members(read, read_table(read.whole, pack.size_bytes), threads, on_progress)


def verify_pack_bytes(read: Reader, pack: Pack, on_progress: OnProgress = ignore_progress) -> None:
    """Verify a pack as a whole. That is enough if its members were verified before.

    CorruptPackError if its bytes do not match its name.
    """
    digest = blake3()
    hash_range(read, 0, pack.size_bytes, on_progress, digest)
    if digest.hexdigest() != pack.name:
        raise _corrupt(pack, f"has BLAKE3 {digest.hexdigest()}")


def hash_range(read: Reader, start: int, size_bytes: int, on_progress: OnProgress, *digests: Digest) -> None:
    """Update digests with a range, cut where the object ends."""
    for piece in read.pieces(start, size_bytes):
        for digest in digests:
            digest.update(piece)
        on_progress(len(piece))


def read_table(whole: Callable[[int, int], bytes | memoryview], size_bytes: int) -> PackTable:
    """The tables of a pack, unverified. One call of `whole` for most packs, two at most.

    InvalidPackError if they contradict themselves.
    """
    guess = min(_TAIL_BYTES, size_bytes)
    tail = bytes(whole(size_bytes - guess, guess))
    wanted = tail_bytes(size_bytes, tail)
    if wanted > len(tail):
        tail = bytes(whole(size_bytes - wanted, wanted))
    return parse_table(size_bytes, tail)


def _corrupt(item: StoredObject, what: str) -> CorruptBlobError:
    kind = CorruptPackError if isinstance(item, Pack) else CorruptBlobError
    noun = "pack" if isinstance(item, Pack) else "blob"
    return kind(
        f"{noun} {item.name} {what}; it does not count. If it stays so, publish the release again with repair"
    )


def _verify_members(read: Reader, table: PackTable, threads: int, on_progress: OnProgress) -> None:
    """Frame by frame, on two threads if that is worth it: hashing and zstd release the GIL."""
    frames = iter(table.frames)
    lock, failures = threading.Lock(), list[BaseException]()

    def work(tick: Callable[[], None]) -> None:
        reader = FrameReader()
        for frame in _taking(frames, lock, failures):
            check_members(table, frame, reader.raw(frame, read.whole(frame.start, frame.stored_bytes)))
            tick()

    def help_out() -> None:
        try:
            work(lambda: None)
        except BaseException as exc:  # noqa: BLE001 - it is raised by the thread that waits for this one
            failures.append(exc)

    with _helper(help_out, failures) if threads > 1 and _worth_two(table) else contextlib.nullcontext():
        work(lambda: on_progress(0))
    if failures:
        raise failures[0]


def _taking(
    frames: Iterator[PackFrame], lock: threading.Lock, failures: list[BaseException]
) -> Iterator[PackFrame]:
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
