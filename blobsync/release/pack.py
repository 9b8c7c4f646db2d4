r"""Packs: many small blobs in one immutable object. Pure.

Layout of the bytes, all numbers little-endian and unsigned of 32 bits:

    b"BSPACK1\n"          for people; readers use the one at the end
    frames                one after the other, zstd with a checksum if that is smaller, else raw
    frame table           for each: stored bytes, raw bytes, members, codec (0 raw, 1 zstd)
    member table          for each: SHA-256 (32 bytes), size
    members, frames       number of each
    b"BSPACK1\n"

A pack is named by the BLAKE3 of all its bytes. A member is in one frame; the members of a frame follow each
other and fill it. So each frame can be read separately. A pack contains the bytes and digests of blobs, but
no paths and no modes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import IO

import zstandard
from blake3 import blake3

from blobsync.errors import CorruptPackError, InvalidPackError
from blobsync.release.manifest import MAX_ARTIFACTS, PACKED_BYTES

MAGIC = b"BSPACK1\n"
FRAME_BYTES = 4 << 20
"""Limit of raw bytes in a frame that this version writes."""
MAX_FRAME_BYTES = FRAME_BYTES + PACKED_BYTES
MAX_PACK_BYTES = 64 << 20
MAX_RAW_BYTES = 256 << 20
MAX_MEMBERS = MAX_ARTIFACTS  # a release has no more; bounds the memory that tables take
MAX_FRAMES = 1 << 12  # of 4 MiB, a pack has 64

_LEVEL = 3
_WORTH = 0.9
"""A frame is stored raw if zstd reduces it to no less than this share."""
_RAW, _ZSTD = 0, 1
_FRAME = struct.Struct("<IIII")
_MEMBER = struct.Struct("<32sI")
_COUNTS = struct.Struct("<II")
_FOOTER_BYTES = _COUNTS.size + len(MAGIC)
MIN_PACK_BYTES = len(MAGIC) + _FOOTER_BYTES


@dataclass(frozen=True, slots=True)
class PackFrame:
    """Where a frame is in its pack, and which members it has."""

    start: int
    stored_bytes: int
    raw_bytes: int
    is_zstd: bool
    first_member: int
    member_count: int


@dataclass(frozen=True, slots=True)
class PackTable:
    """The tables of a pack. `sha256s` and `sizes` are of the members, in order."""

    frames: tuple[PackFrame, ...]
    sha256s: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def raw_bytes(self) -> int:
        """Size of all members."""
        return sum(frame.raw_bytes for frame in self.frames)

    def frames_with(self, wanted: Set[str]) -> list[PackFrame]:
        """Frames that have one of these members, by SHA-256."""
        ends = ((frame, frame.first_member + frame.member_count) for frame in self.frames)
        return [frame for frame, end in ends if not wanted.isdisjoint(self.sha256s[frame.first_member : end])]


def tail_bytes(size_bytes: int, footer: bytes) -> int:
    """Number of bytes at the end of a pack that `parse_table` needs.

    `footer` are its last bytes, at least `MIN_PACK_BYTES`. InvalidPackError if they are not those of a pack.
    """
    if size_bytes > MAX_PACK_BYTES:
        raise InvalidPackError(f"a pack of {size_bytes} bytes is above {MAX_PACK_BYTES}; not read")
    if size_bytes < MIN_PACK_BYTES or len(footer) < _FOOTER_BYTES or not footer.endswith(MAGIC):
        raise InvalidPackError("these bytes do not end as a pack does")
    members, frames = _COUNTS.unpack_from(footer, len(footer) - _FOOTER_BYTES)
    if members > MAX_MEMBERS or frames > min(members, MAX_FRAMES):
        raise InvalidPackError(f"a pack of {members} members in {frames} frames cannot be")
    wanted: int = frames * _FRAME.size + members * _MEMBER.size + _FOOTER_BYTES
    if len(MAGIC) + wanted > size_bytes:
        raise InvalidPackError(f"the tables of a pack would be larger than its {size_bytes} bytes")
    return wanted


def parse_table(size_bytes: int, tail: bytes) -> PackTable:
    """Parse the tables of a pack from an untrusted source.

    `tail` are its last bytes, at least `tail_bytes`. InvalidPackError if they contradict themselves, or
    exceed a limit.
    """
    wanted = tail_bytes(size_bytes, tail)
    if len(tail) < wanted:
        raise InvalidPackError(f"the tables of a pack have {wanted} bytes, not {len(tail)}")
    members, frames = _COUNTS.unpack_from(tail, len(tail) - _FOOTER_BYTES)
    at = len(tail) - wanted
    frame_end = at + frames * _FRAME.size
    rows = tuple(_MEMBER.iter_unpack(tail[frame_end : frame_end + members * _MEMBER.size]))
    sha256s, sizes = tuple(digest.hex() for digest, _ in rows), tuple(size for _, size in rows)
    if max(sizes, default=0) > PACKED_BYTES:
        raise InvalidPackError(f"a member of a pack is above {PACKED_BYTES} bytes")
    all_frames = tuple(_frames(_FRAME.iter_unpack(tail[at:frame_end]), sizes))
    end = all_frames[-1].start + all_frames[-1].stored_bytes if all_frames else len(MAGIC)
    if sum(frame.member_count for frame in all_frames) != members or end + wanted != size_bytes:
        raise InvalidPackError("the frames of a pack do not fill it")
    if sum(sizes) > MAX_RAW_BYTES:
        raise InvalidPackError(f"the members of a pack have {sum(sizes)} bytes, more than {MAX_RAW_BYTES}")
    if len(set(sha256s)) < members:
        raise InvalidPackError("a pack has a member twice")
    return PackTable(all_frames, sha256s, sizes)


def _frames(rows: Iterator[tuple[int, ...]], sizes: tuple[int, ...]) -> Iterator[PackFrame]:
    start, first = len(MAGIC), 0
    for stored, raw, count, codec in rows:
        own = sizes[first : first + count]
        if not 0 < count == len(own) or sum(own) != raw or raw > MAX_FRAME_BYTES:
            raise InvalidPackError("a frame of a pack does not fit its members")
        if not (codec == _RAW and stored == raw) and not (codec == _ZSTD and stored < raw):
            raise InvalidPackError(f"a frame of a pack has codec {codec} and {stored} bytes for {raw}")
        yield PackFrame(start, stored, raw, codec == _ZSTD, first, count)
        start, first = start + stored, first + count


class FrameReader:
    """Decompresses frames. Not thread-safe: each thread needs its own."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor(max_window_size=MAX_FRAME_BYTES)

    def raw(self, frame: PackFrame, stored: bytes | memoryview) -> bytes | memoryview:
        """The raw bytes of a frame. CorruptPackError if `stored` does not match the frame."""
        if len(stored) != frame.stored_bytes:
            raise CorruptPackError(f"a frame has {len(stored)} bytes, not {frame.stored_bytes}")
        if not frame.is_zstd:
            return stored
        try:
            if zstandard.frame_content_size(stored) != frame.raw_bytes:  # before memory is allocated
                raise CorruptPackError("a frame says that it has another size than the pack's table")
            raw = self._zstd.decompress(stored, max_output_size=frame.raw_bytes, allow_extra_data=False)
        except zstandard.ZstdError as exc:
            raise CorruptPackError(f"a frame cannot be decompressed: {exc}") from exc
        if len(raw) != frame.raw_bytes:
            raise CorruptPackError(f"a frame has {len(raw)} raw bytes, not {frame.raw_bytes}")
        return raw


def members_of(
    table: PackTable, frame: PackFrame, raw: bytes | memoryview
) -> Iterator[tuple[str, memoryview]]:
    """The members of a frame, by SHA-256, unverified."""
    view, at = memoryview(raw), 0
    for index in range(frame.first_member, frame.first_member + frame.member_count):
        size = table.sizes[index]
        yield table.sha256s[index], view[at : at + size]
        at += size


def check_members(table: PackTable, frame: PackFrame, raw: bytes | memoryview) -> None:
    """Hash the members of a frame. CorruptPackError if one does not match the table."""
    for sha256, data in members_of(table, frame, raw):
        if hashlib.sha256(data).hexdigest() != sha256:
            raise CorruptPackError(f"member {sha256} of a pack has other bytes than its name says")


class PackWriter:
    """Writes one pack, frame by frame, so that no more than a frame is in memory.

    Args:
        file: Written in order, from its current position.
        compress: Try zstd; frames that it does not make smaller are stored raw nevertheless.
        frame_bytes: Raw bytes of a frame, at most; a larger member has its own frame. Also the memory used.
    """

    def __init__(self, file: IO[bytes], *, compress: bool = True, frame_bytes: int = FRAME_BYTES) -> None:
        self._file, self._frame_bytes = file, frame_bytes
        self._zstd = (
            zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True, write_content_size=True)
            if compress
            else None
        )
        self._digest = blake3()
        self._size_bytes = 0
        self._room = memoryview(bytearray(frame_bytes))  # for the open frame
        self._open_bytes = self._open_members = 0
        self._frames: list[bytes] = []
        self._members: list[bytes] = []
        self._names: set[str] = set()
        self.raw_bytes = 0
        self._write(MAGIC)

    @property
    def size_bytes(self) -> int:
        """Stored so far, without the open frame."""
        return self._size_bytes

    def has_room(self, size_bytes: int) -> bool:
        """True if a blob of that size can be added."""
        stored = self._size_bytes + self._open_bytes + size_bytes  # as if nothing could be compressed
        tables = (len(self._members) + 1) * (_MEMBER.size + _FRAME.size) + _FOOTER_BYTES
        return (
            stored + tables <= MAX_PACK_BYTES
            and self.raw_bytes + size_bytes <= MAX_RAW_BYTES
            and len(self._members) < MAX_MEMBERS
        )

    def add(self, sha256: str, data: bytes) -> None:
        """Add a blob, whose digest was computed from these bytes. If it was added before, do nothing.

        InvalidPackError if it is too large, or the pack is full.
        """
        if sha256 in self._names:
            return
        if len(data) > PACKED_BYTES or not self.has_room(len(data)):
            raise InvalidPackError(f"blob {sha256} of {len(data)} bytes does not fit into this pack")
        if self._open_bytes + len(data) > self._frame_bytes:
            self._close_frame()
        self._names.add(sha256)
        self._members.append(_MEMBER.pack(bytes.fromhex(sha256), len(data)))
        self.raw_bytes += len(data)
        if len(data) > self._frame_bytes:  # the only member of its frame
            self._write_frame(memoryview(data), 1)
            return
        self._room[self._open_bytes : self._open_bytes + len(data)] = data
        self._open_bytes += len(data)
        self._open_members += 1
        if self._open_bytes >= self._frame_bytes:
            self._close_frame()

    def finish(self) -> str:
        """Write the tables. Returns the pack's name; `add` must not be called afterwards."""
        self._close_frame()
        self._write(b"".join(self._frames))
        self._write(b"".join(self._members))
        self._write(_COUNTS.pack(len(self._members), len(self._frames)) + MAGIC)
        return self._digest.hexdigest()

    def _close_frame(self) -> None:
        if self._open_members:
            self._write_frame(self._room[: self._open_bytes], self._open_members)
            self._open_bytes = self._open_members = 0

    def _write_frame(self, raw: memoryview, members: int) -> None:
        stored: bytes | memoryview = raw
        if self._zstd is not None and raw:
            smaller = self._zstd.compress(raw)
            if len(smaller) < _WORTH * len(raw):
                stored = smaller
        codec = _RAW if stored is raw else _ZSTD
        self._frames.append(_FRAME.pack(len(stored), len(raw), members, codec))
        self._write(stored)

    def _write(self, data: bytes | memoryview) -> None:
        self._digest.update(data)
        self._size_bytes += len(data)
        left = memoryview(data)
        while left:  # a file without a buffer may take a part
            left = left[self._file.write(left) :]
