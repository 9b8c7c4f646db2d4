"""Laws of packs: written bytes are read back, frame by frame; a table with contradictions is refused."""

from __future__ import annotations

import hashlib
import io
import random
import struct
from collections.abc import Iterable

import pytest
import zstandard
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from blobsync.errors import BlobSyncError, CorruptPackError, InvalidPackError
from blobsync.release.manifest import PACKED_BYTES
from blobsync.release.pack import (
    FRAME_BYTES,
    MAGIC,
    MAX_FRAME_BYTES,
    MAX_FRAMES,
    MAX_MEMBERS,
    MAX_PACK_BYTES,
    MAX_RAW_BYTES,
    MIN_PACK_BYTES,
    FrameReader,
    PackFrame,
    PackWriter,
    check_members,
    members_of,
    parse_table,
    tail_bytes,
)
from tests.thorough import examples

NOISE = random.Random(4).randbytes(PACKED_BYTES)

sizes = st.integers(0, 3000) | st.sampled_from([0, 1, 65_536, 1 << 20, PACKED_BYTES - 1, PACKED_BYTES])


def _noise(size: int, start: int) -> bytes:
    return (NOISE[start:] + NOISE[:start])[:size]


blobs = st.builds(_noise, sizes, st.integers(0, 3000)) | st.builds(
    lambda size, byte: bytes([byte]) * size, sizes, st.integers(0, 3)
)


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _written(
    items: Iterable[bytes], *, compress: bool = True, frame_bytes: int = FRAME_BYTES
) -> tuple[str, bytes]:
    file = io.BytesIO()
    writer = PackWriter(file, compress=compress, frame_bytes=frame_bytes)
    for data in items:
        writer.add(_sha(data), data)
    name = writer.finish()
    assert writer.size_bytes == len(file.getvalue())
    return name, file.getvalue()


def _read(pack: bytes) -> dict[str, bytes]:
    """Read like a reader that gets the end of a pack first, then single frames, the last one first."""
    wanted = tail_bytes(len(pack), pack[-MIN_PACK_BYTES:])
    table = parse_table(len(pack), pack[-wanted:])
    found = {}
    for frame in reversed(table.frames):
        assert frame.stored_bytes <= frame.raw_bytes <= MAX_FRAME_BYTES
        raw = FrameReader().raw(frame, pack[frame.start : frame.start + frame.stored_bytes])
        check_members(table, frame, raw)
        found.update((sha256, bytes(data)) for sha256, data in members_of(table, frame, raw))
    assert table.raw_bytes == sum(map(len, found.values()))
    return found


@settings(max_examples=examples(20), deadline=None)
@given(
    items=st.lists(blobs, max_size=8), compress=st.booleans(), frame_bytes=st.sampled_from([1, 100, 70_000])
)
def test_pack_of_small_frames_gives_back_what_it_got_larger_members_too(
    items: list[bytes], compress: bool, frame_bytes: int
) -> None:
    _, pack = _written(items, compress=compress, frame_bytes=frame_bytes)

    assert _read(pack) == {_sha(data): data for data in items}
    table = parse_table(len(pack), pack)
    assert all(frame.raw_bytes <= frame_bytes or frame.member_count == 1 for frame in table.frames)


@given(items=st.lists(blobs, max_size=12), compress=st.booleans())
def test_what_was_packed_is_read_back_each_frame_by_itself(items: list[bytes], compress: bool) -> None:
    name, pack = _written(items, compress=compress)

    assert name == blake3(pack).hexdigest()
    assert _read(pack) == {_sha(data): data for data in items}


@settings(max_examples=examples(20), deadline=None)
@given(items=st.lists(blobs, max_size=6))
def test_same_blobs_in_the_same_order_make_the_same_pack(items: list[bytes]) -> None:
    assert _written(items) == _written([*items, *items])  # equal items are stored once


def test_pack_of_nothing_is_a_pack() -> None:
    name, pack = _written([])

    assert len(pack) == MIN_PACK_BYTES
    assert name == blake3(pack).hexdigest()
    assert _read(pack) == {}


def test_members_of_no_bytes_and_of_the_most_bytes_share_a_pack() -> None:
    items = [b"", NOISE, b"x", b"\0" * PACKED_BYTES, b"y"]

    assert _read(_written(items)[1]) == {_sha(data): data for data in items}


def test_what_compresses_is_stored_smaller_and_what_does_not_is_stored_raw() -> None:
    _, noise = _written([NOISE])
    _, zeros = _written([bytes(PACKED_BYTES)])

    assert PACKED_BYTES < len(noise) < PACKED_BYTES + 200
    assert len(zeros) < PACKED_BYTES // 1000
    assert not parse_table(len(noise), noise).frames[0].is_zstd
    assert parse_table(len(zeros), zeros).frames[0].is_zstd


def test_writer_writes_on_when_the_file_takes_a_part_at_a_time() -> None:
    class Slow(io.BytesIO):
        def write(self, data: object) -> int:
            return super().write(bytes(memoryview(data)[:100_000]))  # type: ignore[arg-type]

    file = Slow()
    writer = PackWriter(file)
    writer.add(_sha(NOISE), NOISE)

    assert writer.finish() == blake3(file.getvalue()).hexdigest()
    assert _read(file.getvalue()) == {_sha(NOISE): NOISE}


def test_writer_refuses_what_is_too_large() -> None:
    writer = PackWriter(io.BytesIO())

    with pytest.raises(InvalidPackError):
        writer.add("0" * 64, bytes(PACKED_BYTES + 1))


@pytest.mark.parametrize("compress", [True, False])
def test_writer_that_says_it_is_full_has_written_what_is_read(compress: bool) -> None:
    file = io.BytesIO()
    writer = PackWriter(file, compress=compress)
    number = 0
    while writer.has_room(PACKED_BYTES):
        data = number.to_bytes(4, "little") + bytes(PACKED_BYTES - 4)
        writer.add(_sha(data), data)
        number += 1
    with pytest.raises(InvalidPackError):
        writer.add("0" * 64, bytes(PACKED_BYTES))
    writer.finish()

    table = parse_table(writer.size_bytes, file.getvalue())
    assert len(table.sizes) == number
    assert table.raw_bytes <= MAX_RAW_BYTES
    assert writer.size_bytes <= MAX_PACK_BYTES
    if compress:
        assert table.raw_bytes > MAX_RAW_BYTES - PACKED_BYTES
    else:
        assert writer.size_bytes > MAX_PACK_BYTES - 2 * PACKED_BYTES


# Tables made by hand

ONE, TWO = b"first", b"second one"


def _tail(
    frames: Iterable[tuple[int, int, int, int]],
    members: Iterable[tuple[bytes, int]],
    counts: tuple[int, int] | None = None,
) -> bytes:
    rows = b"".join(struct.pack("<IIII", *frame) for frame in frames)
    entries = b"".join(struct.pack("<32sI", digest, size) for digest, size in members)
    counted = (len(entries) // 36, len(rows) // 16) if counts is None else counts
    return rows + entries + struct.pack("<II", *counted) + MAGIC


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


BOTH = [(_digest(ONE), 5), (_digest(TWO), 10)]
FRAME = (15, 15, 2, 0)


def _refused(body: bytes, tail: bytes) -> None:
    pack = MAGIC + body + tail
    with pytest.raises(InvalidPackError):
        parse_table(len(pack), pack)


def test_pack_made_by_hand_is_one() -> None:
    pack = MAGIC + ONE + TWO + _tail([FRAME], BOTH)

    assert pack == _written([ONE, TWO], compress=False)[1]


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [(15, 15, 1, 0)],
        [(15, 15, 3, 0)],
        [(15, 15, 0, 0)],
        [(15, 14, 2, 0)],
        [(15, 16, 2, 0)],
        [(14, 15, 2, 0)],
        [(16, 15, 2, 0)],
        [(15, 15, 2, 1)],  # a zstd frame that is not smaller than its data
        [(15, 15, 2, 2)],
        [(15, 15, 2, 1 << 31)],
        [(15, 15, 0xFFFFFFFF, 0)],
        [(0xFFFFFFFF, 15, 2, 1)],
        [(0xFFFFFFFF, 0xFFFFFFFF, 2, 0)],
        [(5, 5, 1, 0)],  # the table names one of two frames
        [(5, 5, 1, 0), (5, 5, 1, 0)],
        [(10, 10, 1, 0), (5, 5, 1, 0)],
        [(5, 5, 1, 0), (10, 10, 1, 0), (0, 0, 0, 0)],
        [(15, 15, 2, 0), (15, 15, 2, 0)],  # two frames with the same range
        [(0, 15, 2, 1), (15, 0, 0, 0)],
    ],
)
def test_frames_that_do_not_fit_members_or_pack_are_refused(frames: list[tuple[int, int, int, int]]) -> None:
    _refused(ONE + TWO, _tail(frames, BOTH))


@pytest.mark.parametrize(
    "counts",
    [
        (0, 0),
        (1, 1),
        (2, 0),
        (2, 2),
        (2, 3),
        (3, 1),
        (MAX_MEMBERS + 1, 1),
        (0xFFFFFFFF, 1),
        (2, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
    ],
)
def test_counts_that_lie_are_refused(counts: tuple[int, int]) -> None:
    _refused(ONE + TWO, _tail([FRAME], BOTH, counts))


def test_bytes_that_belong_to_nothing_are_refused() -> None:
    tail = _tail([FRAME], BOTH)
    for body in (ONE + TWO + b"x", ONE + TWO[:-1], b"", ONE + TWO + tail):
        _refused(body, tail)
    for end in (b"x", MAGIC, b"\0" * 16):
        _refused(ONE + TWO, tail + end)


def test_member_that_is_there_twice_is_refused() -> None:
    _refused(ONE + ONE, _tail([(10, 10, 2, 0)], [BOTH[0], BOTH[0]]))


def test_member_above_the_limit_is_refused() -> None:
    size = PACKED_BYTES + 1

    _refused(bytes(size), _tail([(size, size, 1, 0)], [(_digest(b""), size)]))


def test_frame_above_the_limit_is_refused() -> None:
    members = [(number.to_bytes(32, "big"), PACKED_BYTES) for number in range(3)]
    raw = 3 * PACKED_BYTES
    assert raw > MAX_FRAME_BYTES

    _refused(b"z" * 100, _tail([(100, raw, 3, 1)], members))


def test_members_above_the_limit_together_are_refused() -> None:
    count = MAX_RAW_BYTES // PACKED_BYTES + 1
    members = [(number.to_bytes(32, "big"), PACKED_BYTES) for number in range(count)]

    _refused(b"z" * count, _tail([(1, PACKED_BYTES, 1, 1)] * count, members))


def test_more_members_or_frames_than_allowed_are_refused() -> None:
    many = [(number.to_bytes(32, "big"), 0) for number in range(MAX_MEMBERS + 1)]
    most = MAGIC + _tail([(0, 0, MAX_MEMBERS, 0)], many[:-1])
    assert len(parse_table(len(most), most).sizes) == MAX_MEMBERS

    _refused(b"", _tail([(0, 0, MAX_MEMBERS + 1, 0)], many))
    _refused(b"", _tail([(0, 0, 1, 0)] * (MAX_FRAMES + 1), many[: MAX_FRAMES + 1]))


def test_pack_above_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(InvalidPackError):
        tail_bytes(MAX_PACK_BYTES + 1, _tail([], []))


def test_end_that_is_shorter_than_its_tables_is_refused() -> None:
    pack = _written([ONE, TWO])[1]
    wanted = tail_bytes(len(pack), pack[-MIN_PACK_BYTES:])

    for missing in (1, 16, wanted - 1):
        with pytest.raises(InvalidPackError):
            parse_table(len(pack), pack[-(wanted - missing) :])


def test_member_with_other_bytes_is_found() -> None:
    pack = _written([ONE, TWO])[1].replace(TWO, TWO.upper())

    with pytest.raises(CorruptPackError):
        _read(pack)


# Frames that lie

ZEROS = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(FRAME_BYTES))
RLE_BLOCK = struct.pack("<I", (131_072 << 3) | 0b10)[:3] + b"\0"
"""128 KiB out of four bytes; not the last block."""


def _zstd(size: int, blocks: bytes, window: int = 0x68, flags: int = 0x80, dictionary: bytes = b"") -> bytes:
    """A zstd frame made by hand: its header says `size`. Source: RFC 8878, 3.1.1."""
    return b"\x28\xb5\x2f\xfd" + bytes([flags, window]) + dictionary + struct.pack("<I", size) + blocks


LAST_RLE_BLOCK = bytes([RLE_BLOCK[0] | 1]) + RLE_BLOCK[1:]
MIB = RLE_BLOCK * 7 + LAST_RLE_BLOCK
unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(FRAME_BYTES))
huge = zstandard.ZstdCompressor().compress(bytes(64 << 20))


def test_frame_made_by_hand_is_one() -> None:
    assert FrameReader().raw(_frame(_zstd(1 << 20, MIB), 1 << 20), _zstd(1 << 20, MIB)) == bytes(1 << 20)


def _frame(stored: bytes, raw_bytes: int) -> PackFrame:
    return PackFrame(len(MAGIC), len(stored), raw_bytes, is_zstd=True, first_member=0, member_count=1)


@pytest.mark.parametrize(
    ("stored", "raw_bytes"),
    [
        pytest.param(b"", 0, id="nothing"),
        pytest.param(b"", FRAME_BYTES, id="nothing for something"),
        pytest.param(b"\0" * 100, FRAME_BYTES, id="no zstd"),
        pytest.param(ZEROS[:-1], FRAME_BYTES, id="cut"),
        pytest.param(ZEROS[:-4] + b"\0" * 4, FRAME_BYTES, id="wrong check sum"),
        pytest.param(ZEROS + b"\0", FRAME_BYTES, id="a byte more"),
        pytest.param(ZEROS + ZEROS, FRAME_BYTES, id="two frames"),
        pytest.param(ZEROS + ZEROS, 2 * FRAME_BYTES, id="two frames, both counted"),
        pytest.param(ZEROS, FRAME_BYTES - 1, id="one byte more than said"),
        pytest.param(ZEROS, FRAME_BYTES + 1, id="one byte less than said"),
        pytest.param(huge, FRAME_BYTES, id="bomb"),
        pytest.param(unsized, FRAME_BYTES, id="no size in the header"),
        pytest.param(_zstd(1 << 20, RLE_BLOCK * 1000 + LAST_RLE_BLOCK), 1 << 20, id="bomb behind its header"),
        pytest.param(_zstd(1 << 20, LAST_RLE_BLOCK), 1 << 20, id="less than its header says"),
        pytest.param(_zstd(0xFFFFFFFF, MIB), 1 << 20, id="header of 4 GiB"),
        pytest.param(_zstd(1 << 20, MIB, window=0xFF), 1 << 20, id="window of terabytes"),
        pytest.param(_zstd(1 << 20, MIB, flags=0x83, dictionary=b"abcd"), 1 << 20, id="a dictionary"),
        pytest.param(b"\x50\x2a\x4d\x18\x04\0\0\0abcd", 12, id="skipped frame"),
        pytest.param(b"\x50\x2a\x4d\x18\x04\0\0\0abcd" + ZEROS, FRAME_BYTES, id="skipped frame before it"),
    ],
)
def test_frame_that_lies_is_refused(stored: bytes, raw_bytes: int) -> None:
    with pytest.raises(CorruptPackError):
        FrameReader().raw(_frame(stored, raw_bytes), stored)


def test_reader_goes_on_after_a_frame_that_lied() -> None:
    reader = FrameReader()
    for stored in (ZEROS[:-1], ZEROS + ZEROS, huge):
        with pytest.raises(CorruptPackError):
            reader.raw(_frame(stored, FRAME_BYTES), stored)

    assert reader.raw(_frame(ZEROS, FRAME_BYTES), memoryview(ZEROS)) == bytes(FRAME_BYTES)


def test_frame_that_was_cut_on_its_way_is_refused() -> None:
    with pytest.raises(CorruptPackError):
        FrameReader().raw(_frame(ZEROS, FRAME_BYTES), ZEROS[:-1])


PACK = _written([ONE, TWO, NOISE[:3000], b"\0" * 5000, b""])[1]


@settings(max_examples=examples(60), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_no_changed_byte_goes_unseen(seed: int) -> None:
    """In tables and frames. The first eight bytes are a label; the digest in the pack's name covers them."""
    chance = random.Random(seed)
    pack = bytearray(PACK)
    pack[chance.randrange(len(MAGIC), len(pack))] ^= 1 << chance.randrange(8)

    try:
        found = _read(bytes(pack))
    except BlobSyncError:
        return
    assert found == _read(PACK)  # a bit of a zstd header that changes nothing
