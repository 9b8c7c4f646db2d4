"""Manifests, layouts and packs as an attacker or a broken machine could make them."""

from __future__ import annotations

import hashlib
import io
import json
import random
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import zstandard

from blobsync.names import is_release_name, path_fault
from blobsync.release.layout import MAX_PACKS, Layout, Pack
from blobsync.release.manifest import CHUNK_BYTES, PACKED_BYTES, Artifact, Manifest, Role
from blobsync.release.pack import MAGIC, MAX_MEMBERS, PackWriter


@dataclass(frozen=True)
class Case:
    """Bytes from outside.

    Args:
        kind: What they seem to be: manifest, layout or pack.
        what: Their fault, as text.
        data: The bytes.
    """

    kind: str
    what: str
    data: bytes

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: {self.data[:300]!r}"


def _sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _small(path: str, data: bytes) -> Artifact:
    return Artifact(path, len(data), _sha(data), Role.CODE, False)


def _valid_pack(compress: bool) -> bytes:
    file = io.BytesIO()
    writer = PackWriter(file, compress=compress)
    for data in (b"", b"one", bytes(5000), b"two" * 100, random.Random(1).randbytes(2000)):
        writer.add(_sha(data), data)
    writer.finish()
    return file.getvalue()


CHUNKED = Artifact("lib/big.jar", CHUNK_BYTES + 9, "5" * 64, Role.DEPENDENCY, True, ("6" * 64, "7" * 64))
MANIFEST = Manifest(
    "flights",
    (_small("main.py", b"one"), _small("lib/ä.py", b"two"), _small('it"s.txt', b"three"), CHUNKED),
)
LAYOUT = Layout((Pack("a" * 64, 100), Pack("b" * 64, 2000)), "ci", datetime(2026, 1, 2, tzinfo=UTC))
VALID = (
    Case("manifest", "valid", MANIFEST.canonical),
    Case("manifest", "valid and empty", Manifest("p", ()).canonical),
    Case("layout", "valid", LAYOUT.encode()),
    Case("pack", "valid", _valid_pack(compress=True)),
    Case("pack", "valid and raw", _valid_pack(compress=False)),
)


def crafted() -> Iterator[Case]:
    """Samples with different faults. None of them may be accepted."""
    yield from _bad_names()
    yield from _bad_values()
    yield from _collisions()
    yield from _second_ways()
    yield from _bad_layouts()
    yield from _bad_packs()
    yield from bombs()


# Manifests


def _written(document: object) -> bytes:
    """Any value in the form of `canonical`."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="surrogatepass")


def _item(**fields: object) -> dict[str, object]:
    usual = {"path": "a", "size_bytes": 1, "sha256": "0" * 64, "role": "code", "executable": False}
    return {**usual, "chunks": [], **fields}


def _manifest(*items: object, **fields: object) -> bytes:
    return _written({"artifacts": list(items), "name": "p", "schema": 2, **fields})


HOSTILE_PATHS = [
    "",
    ".",
    "..",
    "/",
    "//",
    "/etc/passwd",
    "../a",
    "a/..",
    "a/../../b",
    "./a",
    "a/.",
    "a//b",
    "a/",
]
HOSTILE_PATHS += [
    "~/../a",
    "/../a",
    "/./a",
    "a/b/../../../c",
    "\ufffe/../a",
    "x/" * 64 + "y",
    "a/" * 600 + "a",
]
HOSTILE_PATHS += [
    "..\\a",
    "a\\b",
    "C:\\a",
    "\\\\host\\share",
    "a\0b",
    "a\0/../b",
    "a\nb",
    "a\rb",
    "a\x1b[2Jb",
]
HOSTILE_PATHS += ["a\x7f", "a\x85b", "e\u0301", "\u212b", "\u1100\u1161", "\ud800", "a/\udfff", "x" * 256]
HOSTILE_PATHS += ["ä" * 128, "/".join(["z" * 250] * 5)]
HOSTILE_VALUES: list[Any] = [None, True, 1, -1, 1.0, 1e300, float("nan"), float("inf"), "", "1", [], [1], {}]
HOSTILE_VALUES += [{"a": 1}, 1 << 63, 1 << 64, 10**400, -(1 << 63), ["0" * 64], "0" * 63, "0" * 65, "A" * 64]
HOSTILE_VALUES += [
    "../" + "0" * 61,
    "0" * 64 + "\n",
    "\uff10" * 64,
    "CODE",
    "link",
    "symlink",
    [[[]]],
    "\ud800",
]


def _bad_names() -> Iterator[Case]:
    for path in HOSTILE_PATHS:
        yield Case("manifest", f"path {path[:30]!r}", _manifest(_item(path=path)))
    for name in ("", ".", "..", "../p", "a/b", "/p", "p\0", "p\n", "-p", ".p", "x" * 129, "ä", "p\\q", "p q"):
        yield Case("manifest", f"name {name[:30]!r}", _manifest(name=name))


def _bad_values() -> Iterator[Case]:
    fine = {("size_bytes", repr(1)), ("executable", repr(True)), ("chunks", repr([]))}
    for field in ("path", "size_bytes", "sha256", "role", "executable", "chunks"):
        for value in HOSTILE_VALUES:
            is_name = field == "path" and isinstance(value, str) and path_fault(value) is None
            if not is_name and (field, repr(value)) not in fine:
                yield Case("manifest", f"{field} {str(value)[:30]!r}", _manifest(_item(**{field: value})))
        lacking = _item()
        del lacking[field]
        yield Case("manifest", f"no {field}", _manifest(lacking))
    yield Case("manifest", "a link", _manifest(_item(target="/etc/passwd")))
    yield Case("manifest", "a type", _manifest(_item(type="symlink")))
    yield Case("manifest", "a mode", _manifest(_item(mode=0o4755)))
    for value in HOSTILE_VALUES:
        yield Case("manifest", f"schema {str(value)[:30]!r}", _manifest(schema=value))
        if not (isinstance(value, str) and is_release_name(value)):
            yield Case("manifest", f"name {str(value)[:30]!r}", _manifest(name=value))
        if value != []:
            yield Case("manifest", f"artifacts {str(value)[:30]!r}", _manifest(artifacts=value))
            yield Case("manifest", f"artifact {str(value)[:30]!r}", _manifest(value))
    for size, count in (
        (CHUNK_BYTES + 1, 0),
        (CHUNK_BYTES + 1, 1),
        (CHUNK_BYTES + 1, 3),
        (1, 1),
        (5 << 40, 2),
    ):
        item = _item(size_bytes=size, chunks=["1" * 64] * count)
        yield Case("manifest", f"{count} chunks for {size}", _manifest(item))
    huge = [_item(path=f"f{n:03}", size_bytes=5 << 40, sha256=f"{n:064x}") for n in range(2)]
    yield Case("manifest", "size without chunks", _manifest(*huge))


def _collisions() -> Iterator[Case]:
    pairs = [
        ("a", "a"),
        ("A", "a"),
        ("a", "a/b"),
        ("A", "a/b"),
        ("A/x", "a/y"),
        ("d/ß", "d/ss"),
        ("ß/x", "ss/y"),
    ]
    pairs += [
        ("x/y", "x/y/z"),
        ("Ä", "ä"),
        ("K", "\u212a"),
        ("\u1e9e", "ß"),
        ("\u017f", "s"),
        ("a/B/c", "a/b/d"),
    ]
    pairs += [
        ("a/b/C", "a/b/c"),
        ("a", "a/b/c/d"),
        ("\u03c2", "\u03c3"),
        ("a", "a\u200b"),
        ("x/\ufeffa", "x/a"),
    ]
    pairs += [("ﬀ", "ff"), ("i\u0307x", "İx"), ("a/b c/d", "A/b/c")]
    for one, other in pairs:
        items = [_item(path=path) for path in sorted((one, other))]
        yield Case("manifest", f"collision of {one!r} and {other!r}", _manifest(*items))
        between = [_item(path=path) for path in sorted((one, other, "a b", "a-b", "a.b/c", "zz/top"))]
        yield Case("manifest", f"collision of {one!r} and {other!r}, apart", _manifest(*between))
    two = (_item(path="a", size_bytes=1), _item(path="b", size_bytes=2))
    yield Case("manifest", "one digest, two sizes", _manifest(*two))
    large = _item(path="a", size_bytes=CHUNK_BYTES + 1, chunks=["1" * 64, "2" * 64])
    for other in ({"sha256": "9" * 64}, {"size_bytes": CHUNK_BYTES + 2}, {"chunks": ["1" * 64, "3" * 64]}):
        yield Case(
            "manifest",
            f"twice, with another {list(other)}",
            _manifest(large, {**large, "path": "b", **other}),
        )
    yield Case("manifest", "not sorted", _manifest(_item(path="b"), _item(path="a")))


def _second_ways() -> Iterator[Case]:
    text = MANIFEST.canonical.decode()
    for old, new in (
        ("{", " {"),
        ("}", "}\n"),
        (",", ", "),
        (":", ": "),
        ("false", "0"),
        ("false", "False"),
        ("main.py", "m\\u0061in.py"),
        ("main.py", "main\\/py"),
        ("main.py", "../main.py"),
        ('"role":"code"', '"role":"code","role":"code"'),
        ('"schema":2', '"schema":2,"schema":2'),
        ('"schema":2', '"schema":02'),
        ('"schema":2', '"schema":2.0'),
        ('"schema":2', '"schema":2e0'),
        ('"schema":2', '"schema":-2'),
        ('"name":"flights"', '"name":"flights","name":"p"'),
        ('{"artifacts":[', '{"artifacts":[],"artifacts":['),
        ('"size_bytes":3', '"size_bytes":03'),
        ('"size_bytes":3', '"size_bytes":3.0'),
        ('"size_bytes":3', '"size_bytes":-0'),
        ('"size_bytes":3', '"size_bytes":NaN'),
        ('"size_bytes":3', '"size_bytes":Infinity'),
        ('"size_bytes":3', '"size_bytes":3e0'),
        ("},{", "},,{"),
        ("},{", "}{"),
        ("}],", "},],"),
        ('"chunks":[]', '"chunks":[,]'),
        ('"chunks":[]', '"chunks":null'),
        ("{", "\ufeff{"),
        ("{", "//\n{"),
    ):
        assert old in text
        yield Case("manifest", f"{old!r} written {new!r}", text.replace(old, new, 1).encode())
    for encoding in ("utf-16", "utf-32", "latin-1"):
        yield Case("manifest", encoding, text.encode(encoding))
    for data in (
        b"",
        b"null",
        b"[]",
        b"{}",
        b'""',
        b"0",
        b"NaN",
        b"\x00",
        b"\xff\xfe",
        b"PK\x03\x04",
        b"\x1f\x8b",
    ):
        yield Case("manifest", "something else", data)
        yield Case("layout", "something else", data)
        yield Case("pack", "something else", data)


# Layouts


def _bad_layouts() -> Iterator[Case]:
    valid = json.loads(LAYOUT.encode())
    for field in valid:
        lacking = {key: value for key, value in valid.items() if key != field}
        yield Case("layout", f"no {field}", _written(lacking))
        for value in HOSTILE_VALUES:
            is_fine = (field == "schema" and value == 1 and type(value) is int) or (
                (field == "packs" and value == [])
                or (field == "published_by" and isinstance(value, str) and value.isprintable())
            )
            if not is_fine:
                yield Case("layout", f"{field} {str(value)[:30]!r}", _written({**valid, field: value}))
    for field, usual in (("name", "a" * 64), ("size_bytes", 100)):
        for value in HOSTILE_VALUES:
            if value != usual and value not in ("0" * 64,):
                pack = {"name": "a" * 64, "size_bytes": 100, field: value}
                yield Case(
                    "layout", f"pack with {field} {str(value)[:30]!r}", _written({**valid, "packs": [pack]})
                )
    many = [{"name": f"{n:064x}", "size_bytes": 100} for n in range(MAX_PACKS + 1)]
    yield Case("layout", "too many packs", _written({**valid, "packs": many}))
    two = [{"name": "a" * 64, "size_bytes": size} for size in (100, 101)]
    yield Case("layout", "one pack, two sizes", _written({**valid, "packs": two}))


# Packs


def pack_of(
    body: bytes,
    frames: list[tuple[int, int, int, int]],
    members: list[tuple[bytes, int]],
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A pack with given parts. Frames are (stored, raw, members, codec), counts (members, frames)."""
    rows = b"".join(struct.pack("<IIII", *frame) for frame in frames)
    entries = b"".join(struct.pack("<32sI", *member) for member in members)
    counted = struct.pack("<II", *(counts or (len(members), len(frames))))
    return MAGIC + body + rows + entries + counted + MAGIC


def _bad_packs() -> Iterator[Case]:
    one, two = hashlib.sha256(b"one").digest(), hashlib.sha256(b"other").digest()
    body, members = b"oneother", [(one, 3), (two, 5)]
    edges = (0, 1, 2, 3, 5, 7, 9, 1 << 16, 1 << 31, (1 << 32) - 1)
    for place, field in enumerate(("stored", "raw", "members", "codec")):
        for value in edges:
            frame = [8, 8, 2, 0]
            if frame[place] != value:
                frame[place] = value
                row = (frame[0], frame[1], frame[2], frame[3])
                yield Case("pack", f"{field} {value}", pack_of(body, [row], members))
    for value in edges:
        if value != 3:
            yield Case("pack", f"size {value}", pack_of(body, [(8, 8, 2, 0)], [(one, value), members[1]]))
        for counts in ((value, 1), (2, value), (value, value)):
            if counts != (2, 1):
                yield Case("pack", f"counts {counts}", pack_of(body, [(8, 8, 2, 0)], members, counts))
    again = [(8, 8, 2, 0), (8, 8, 2, 0)]
    yield Case("pack", "overlapping frames", pack_of(body, again, members))
    yield Case("pack", "a member twice", pack_of(b"oneone", [(6, 6, 2, 0)], [(one, 3), (one, 3)]))
    yield Case("pack", "members exchanged", pack_of(body, [(8, 8, 2, 0)], [(two, 3), (one, 5)]))
    yield Case("pack", "other bytes", pack_of(b"ONEOTHER", [(8, 8, 2, 0)], members))
    yield Case("pack", "a byte that belongs to no frame", pack_of(body + b"x", [(8, 8, 2, 0)], members))
    yield Case("pack", "something behind it", pack_of(body, [(8, 8, 2, 0)], members) + b"\0")
    yield Case("pack", "a pack in a pack", pack_of(body, [(8, 8, 2, 0)], members) * 2)
    for what, stored, raw in lying_frames():
        name = hashlib.sha256(bytes(raw)).digest()
        yield Case("pack", what, pack_of(stored, [(len(stored), raw, 1, 1)], [(name, raw)]))


RLE_BLOCK = struct.pack("<I", (131_072 << 3) | 0b10)[:3] + b"\0"
"""128 KiB out of four bytes; not the last block."""
LAST_RLE_BLOCK = bytes([RLE_BLOCK[0] | 1]) + RLE_BLOCK[1:]


def frame_by_hand(size: int, blocks: bytes, *, window: int = 0x68, flags: int = 0x80) -> bytes:
    """A zstd frame whose header says `size`. Source: RFC 8878, 3.1.1."""
    return b"\x28\xb5\x2f\xfd" + bytes([flags, window]) + struct.pack("<I", size) + blocks


def lying_frames() -> Iterator[tuple[str, bytes, int]]:
    """Frames with a fault: its name, the stored bytes, and the number of zeros that they claim to be."""
    mib = RLE_BLOCK * 7 + LAST_RLE_BLOCK
    whole = zstandard.ZstdCompressor(write_checksum=True).compress(bytes(1 << 20))
    skipped = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1 << 20))
    bomb = zstandard.ZstdCompressor().compress(bytes(256 << 20))
    yield "nothing as zstd", b"", 0
    yield "nothing for much", b"", 1 << 20
    yield "no zstd", bytes(100), 1 << 20
    yield "zstd cut", whole[:-1], 1 << 20
    yield "zstd with a wrong check sum", whole[:-4] + b"\0" * 4, 1 << 20
    yield "zstd and a byte", whole + b"\0", 1 << 20
    yield "two zstd frames", whole + whole, 1 << 20
    yield "two zstd frames counted", whole + whole, 2 << 20
    yield "zstd of one byte more", whole, (1 << 20) - 1
    yield "zstd of one byte less", whole, (1 << 20) + 1
    yield "zstd without a size", unsized, 1 << 20
    yield "skipped zstd frame", skipped, 1 << 20
    yield "zstd behind a skipped frame", skipped + whole, 1 << 20
    yield "bomb of 256 MiB", bomb, PACKED_BYTES
    yield "bomb behind its header", frame_by_hand(1 << 20, RLE_BLOCK * 4000 + LAST_RLE_BLOCK), 1 << 20
    yield "zstd of less than its header says", frame_by_hand(1 << 20, LAST_RLE_BLOCK), 1 << 20
    yield "zstd header of 4 GiB", frame_by_hand((1 << 32) - 1, mib), 1 << 20
    yield "zstd window of terabytes", frame_by_hand(1 << 20, mib, window=0xFF), 1 << 20
    yield "zstd with a dictionary", frame_by_hand(1 << 20, b"abcd" + mib, flags=0x83), 1 << 20


def bombs() -> Iterator[Case]:
    """Samples that need far more memory or time than their size. All must be refused."""
    for what, data in (
        ("deep lists", b"[" * 1_000_000),
        ("deep objects", b'{"a":' * 200_000),
        ("lists", b"[" + b"[]," * 5_000_000 + b"[]]"),
        ("numbers", b"[" + b"1000," * 3_000_000 + b"0]"),
        ("a long number", b'{"artifacts":[],"name":"p","schema":' + b"9" * 1_000_000 + b"}"),
        ("commas", b'{"artifacts":[' + b"," * 20_000_000 + b'],"name":"p","schema":2}'),
        ("quotes", b'{"artifacts":[{"chunks":[],"executable":true,"path":"' + b'\\"' * 8_000_000),
        ("beginnings", b'{"artifacts":[' + b'{"chunks":[' * 1_500_000 + b'],"name":"p","schema":2}'),
        ("ends", b'{"artifacts":[' + b'],"name":"' * 1_500_000),
        ("a long path", _manifest(_item(path="x" * 16_000_000))),
        ("chunks", _manifest(_item(chunks=["1" * 64] * 200_000))),
        ("above the limit", b"[" + b" " * (64 << 20)),
    ):
        yield Case("manifest", f"bomb of {what}", data)
        yield Case("layout", f"bomb of {what}", data)
        yield Case("layout", f"bomb of {what}, short", data[: (1 << 20) - 100])
    packs = b'{"packs":[' + b"[]," * 340_000 + b'[]],"published_at":"","published_by":"","schema":1}'
    yield Case("layout", "bomb of packs", packs)
    many = b"".join(struct.pack("<32sI", n.to_bytes(32, "big"), 0) for n in range(MAX_MEMBERS + 1))
    tables = struct.pack("<IIII", 0, 0, MAX_MEMBERS + 1, 0) + many
    yield Case("pack", "bomb of members", MAGIC + tables + struct.pack("<II", MAX_MEMBERS + 1, 1) + MAGIC)
    each = b"".join(struct.pack("<IIII", 0, 0, 1, 0) for _ in range(MAX_MEMBERS))
    tables = each + many[:-36]
    yield Case(
        "pack", "bomb of frames", MAGIC + tables + struct.pack("<II", MAX_MEMBERS, MAX_MEMBERS) + MAGIC
    )
    large = [(bytes([n]) * 32, PACKED_BYTES) for n in range(65)]
    yield Case("pack", "bomb of sizes", pack_of(b"z" * 65, [(1, PACKED_BYTES, 1, 1)] * 65, large))
    yield Case(
        "pack", "frame stored larger", pack_of(bytes(60 << 20), [(60 << 20, 1, 1, 1)], [(b"1" * 32, 1)])
    )
    deep = sorted(f"{n:03}/" + "d/" * 500 + "x" for n in range(1000))
    yield Case("manifest", "bomb of folders", _manifest(*(_item(path=path) for path in deep)))
    twins = sorted(["x/" * 60 + f"f{n}" for n in range(20_000)] + ["x/" * 59 + "X/f"])
    yield Case("manifest", "twin at the end", _manifest(*(_item(path=path) for path in twins)))


# A seeded fuzzer

_WORDS = [
    b"..",
    b"/",
    b"\\",
    b"\0",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\xff",
    b"\xe2\x80\x8b",
    b"null",
]
_WORDS += [b"true", b"-1", b"1e9", b"NaN", b"99999999999999999999", b"\xff\xff\xff\xff", b"\0\0\0\0", MAGIC]


def fuzzed(case: Case, seed: int) -> Case:
    """Change some bytes of a valid sample. The result may still be valid."""
    chance = random.Random(seed)
    data = bytearray(case.data)
    done = []
    for _ in range(chance.choice([1, 1, 1, 2, 4])):
        change = chance.choice(_CHANGES)
        change(data, chance)
        done.append(change.__name__.strip("_"))
    return Case(case.kind, f"{case.what}, {' and '.join(done)}, seed {seed}", bytes(data))


def _range(data: bytearray, chance: random.Random) -> slice:
    start = chance.randint(0, len(data))
    return slice(start, min(len(data), start + chance.choice([1, 2, 4, 16, 36, 100])))


def _flip(data: bytearray, chance: random.Random) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _flip_in_tables(data: bytearray, chance: random.Random) -> None:
    if data:
        data[-chance.randint(1, min(len(data), 300))] ^= 1 << chance.randrange(8)


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randint(0, len(data)) :]


def _leave_out(data: bytearray, chance: random.Random) -> None:
    del data[_range(data, chance)]


def _insert(data: bytearray, chance: random.Random) -> None:
    at = chance.randint(0, len(data))
    data[at:at] = chance.choice(_WORDS)


def _overwrite(data: bytearray, chance: random.Random) -> None:
    data[_range(data, chance)] = chance.choice(_WORDS)


def _double(data: bytearray, chance: random.Random) -> None:
    part = _range(data, chance)
    data[part.start : part.start] = data[part]


def _exchange(data: bytearray, chance: random.Random) -> None:
    one, other = _range(data, chance), _range(data, chance)
    data[one], data[other] = data[other], data[one]


def _change_a_number(data: bytearray, chance: random.Random) -> None:
    """Change a number of a JSON document, or four bytes of a pack's tables."""
    numbers = list(re.finditer(rb"(?<=[:])[0-9]+", data))
    if numbers:
        found = chance.choice(numbers)
        value = chance.choice([b"0", b"-1", b"1.5", b"true", b"007", b"1e3", b"9" * 30, b'"7"'])
        data[found.start() : found.end()] = value
    elif len(data) > 16:
        at = len(data) - 4 * chance.randint(3, min(len(data) // 4, 60))
        data[at : at + 4] = struct.pack("<I", chance.choice([0, 1, 2, 1 << 20, 1 << 31, (1 << 32) - 1]))


_CHANGES: list[Callable[[bytearray, random.Random], None]] = [
    _flip,
    _flip_in_tables,
    _cut,
    _leave_out,
    _insert,
    _overwrite,
    _double,
    _exchange,
    _change_a_number,
]
