"""Laws of manifests: one canonical form, and nothing hostile gets through."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from blobsync import Artifact, BlobSyncError, InvalidManifestError, Manifest, Role
from blobsync.names import collision, path_fault
from blobsync.release.blob import CHUNK_BYTES, Blob, chunk_count

digests = st.text("0123456789abcdef", min_size=64, max_size=64)
segments = st.text("abcXYZäß._- 09", min_size=1, max_size=12).filter(lambda text: text not in {".", ".."})
paths = st.lists(segments, min_size=1, max_size=4).map(
    lambda parts: unicodedata.normalize("NFC", "/".join(parts))
)


@st.composite
def _artifact(draw: st.DrawFn) -> Artifact:
    size_bytes = draw(st.integers(0, 5 * CHUNK_BYTES) | st.integers(0, CHUNK_BYTES + 1))
    count = chunk_count(size_bytes)
    return Artifact(
        path=draw(paths),
        size_bytes=size_bytes,
        sha256=draw(digests),
        role=draw(st.sampled_from(Role)),
        executable=draw(st.booleans()),
        chunks=tuple(draw(st.lists(digests, min_size=count, max_size=count))),
    )


artifacts = _artifact()
releases = st.lists(artifacts, max_size=12, unique_by=(lambda item: item.path, lambda item: item.sha256))


@given(items=releases, order=st.randoms())
def test_same_files_give_the_same_release_in_any_order(items: list[Artifact], order: random.Random) -> None:
    assume(collision(item.path for item in items) is None)
    shuffled = list(items)
    order.shuffle(shuffled)

    one, other = Manifest("p", tuple(items)), Manifest("p", tuple(shuffled))

    assert one == other
    assert one.digest == other.digest


@given(items=releases)
def test_what_was_written_is_read_back(items: list[Artifact]) -> None:
    assume(collision(item.path for item in items) is None)
    manifest = Manifest("p", tuple(items))

    again = Manifest.parse(manifest.canonical)

    assert again == manifest
    assert again.canonical == manifest.canonical
    assert again.digest == manifest.digest


@given(items=releases.filter(bool), place=st.integers(0), byte=st.integers(1, 255))
def test_no_changed_byte_keeps_the_digest(items: list[Artifact], place: int, byte: int) -> None:
    assume(collision(item.path for item in items) is None)
    manifest = Manifest("p", tuple(items))
    data = bytearray(manifest.canonical)
    data[place % len(data)] ^= byte

    try:
        changed = Manifest.parse(bytes(data))
    except InvalidManifestError:
        return
    assert changed.digest != manifest.digest


@given(data=st.binary(max_size=300))
def test_any_bytes_are_refused_with_our_error(data: bytes) -> None:
    with pytest.raises(InvalidManifestError):
        Manifest.parse(data)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@given(
    field=st.sampled_from(["path", "size_bytes", "sha256", "role", "executable", "chunks"]),
    value=json_values,
)
def test_any_value_in_any_field_is_read_soundly_or_refused(field: str, value: object) -> None:
    item = {
        "path": "a",
        "size_bytes": 1,
        "sha256": "0" * 64,
        "role": "code",
        "executable": False,
        "chunks": [],
        field: value,
    }
    data = json.dumps(
        {"artifacts": [item], "name": "p", "schema": 2},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode(errors="replace")

    try:
        read = Manifest.parse(data)
    except InvalidManifestError:
        return
    assert read.canonical == data


@settings(max_examples=300)
@given(
    parts=st.lists(
        st.sampled_from(
            ["..", ".", "", "a", "b", "a\\b", "a\0", "\n", "e\u0301", "x" * 256, "\ud800", "~", "..."]
        ),
        min_size=1,
        max_size=5,
    )
)
def test_accepted_path_stays_below_its_root_and_refused_one_is_refused(parts: list[str]) -> None:
    path = "/".join(parts)
    if path_fault(path) is not None:
        with pytest.raises(BlobSyncError):
            Manifest("p", (Artifact(path, 0, "0" * 64, Role.CODE, False),))
        return

    assert not PurePosixPath(path).is_absolute()
    assert set(parts) <= {"a", "b", "~", "..."}  # all the others must have been refused


@pytest.mark.parametrize(
    "path",
    [
        "../a",
        "a/..",
        "/a",
        "a//b",
        "a/",
        "./a",
        "a/./b",
        "",
        "a\\b",
        "a\0b",
        "e\u0301",
        "x" * 256,
        "a\nb",
        "a/" * 600,
    ],
)
def test_hostile_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidManifestError):
        Manifest("p", (Artifact(path, 0, "0" * 64, Role.CODE, False),))


@pytest.mark.parametrize(
    ("one", "other"),
    [("a", "a"), ("a", "A"), ("a", "a/b"), ("A/x", "a/y"), ("d/ß", "d/ss"), ("x/y/z", "x/y"), ("Ä", "ä")],
)
def test_names_that_collide_somewhere_are_refused(one: str, other: str) -> None:
    items = (Artifact(one, 0, "0" * 64, Role.CODE, False), Artifact(other, 0, "0" * 64, Role.CODE, False))

    with pytest.raises(InvalidManifestError):
        Manifest("p", items)
    with pytest.raises(InvalidManifestError):
        Manifest("p", items[::-1])


def test_names_that_only_look_alike_are_fine() -> None:
    items = tuple(
        Artifact(path, 0, "0" * 64, Role.CODE, False) for path in ("a/b", "a/c", "ab", "a.b/c", "b/a")
    )

    assert len(Manifest("p", items).artifacts) == 5


@pytest.mark.parametrize(
    "text",
    [
        '{"artifacts":[],"name":"p","schema":1}',
        '{"artifacts":[],"name":"p","schema":3}',
        '{"artifacts":[],"name":"p","schema":2.0}',
        '{"artifacts":[],"name":"p","schema":true}',
        '{"artifacts":[],"name":"p","schema":2,"more":1}',
        '{"artifacts":[],"name":"../p","schema":2}',
        '{"artifacts":[],"artifacts":[],"name":"p","schema":2}',
        ' {"artifacts":[],"name":"p","schema":2}',
        '{"name":"p","artifacts":[],"schema":2}',
        "[" * 100_000,
        '{"artifacts":[],"name":"p","schema":' + "9" * 10_000 + "}",
    ],
)
def test_second_way_of_writing_a_manifest_is_refused(text: str) -> None:
    with pytest.raises(InvalidManifestError):
        Manifest.parse(text.encode())


def test_schema_of_the_lists_above_is_the_one_that_is_read() -> None:
    assert Manifest.parse(b'{"artifacts":[],"name":"p","schema":2}').artifacts == ()


@pytest.mark.parametrize(
    ("size_bytes", "chunks"),
    [
        (1, ("1" * 64,)),
        (CHUNK_BYTES, ("1" * 64,)),
        (CHUNK_BYTES + 1, ()),
        (CHUNK_BYTES + 1, ("1" * 64,)),
        (CHUNK_BYTES + 1, ("1" * 64,) * 3),
        (CHUNK_BYTES + 1, ("1" * 64, "A" * 64)),
        (CHUNK_BYTES + 1, ("1" * 64, "1" * 63)),
    ],
)
def test_chunks_that_do_not_fit_the_size_are_refused(size_bytes: int, chunks: tuple[str, ...]) -> None:
    with pytest.raises(InvalidManifestError, match="chunk digests"):
        Manifest("p", (Artifact("a", size_bytes, "0" * 64, Role.CODE, False, chunks),))


@pytest.mark.parametrize(
    "others",
    [
        Blob("0" * 64, CHUNK_BYTES + 2, ("1" * 64, "2" * 64)),
        Blob("0" * 64, CHUNK_BYTES + 1, ("1" * 64, "3" * 64)),
    ],
)
def test_one_digest_cannot_have_two_contents(others: Blob) -> None:
    one = Artifact("a", CHUNK_BYTES + 1, "0" * 64, Role.CODE, False, ("1" * 64, "2" * 64))
    other = Artifact("b", others.size_bytes, others.sha256, Role.CODE, False, others.chunks)

    with pytest.raises(InvalidManifestError, match="two contents"):
        Manifest("p", (one, other))


def test_same_bytes_at_two_paths_are_one_blob() -> None:
    items = tuple(Artifact(path, 7, "0" * 64, Role.CODE, False) for path in ("a", "b"))

    manifest = Manifest("p", items)

    assert manifest.blobs == {"0" * 64: Blob("0" * 64, 7)}
    assert manifest.size_bytes == 7


def test_release_has_the_same_digest_for_ever() -> None:
    chunks = ("01" * 32, "23" * 32)
    manifest = Manifest(
        "flights",
        (
            Artifact("main.py", 3, "ab" * 32, Role.CODE, False),
            Artifact("lib/big.jar", CHUNK_BYTES + 1, "cd" * 32, Role.DEPENDENCY, True, chunks),
        ),
    )

    assert manifest.canonical == (
        b'{"artifacts":[{"chunks":["' + b"01" * 32 + b'","' + b"23" * 32 + b'"],"executable":true,'
        b'"path":"lib/big.jar","role":"dependency","sha256":"' + b"cd" * 32 + b'","size_bytes":16777217},'
        b'{"chunks":[],"executable":false,"path":"main.py","role":"code","sha256":"' + b"ab" * 32 + b'",'
        b'"size_bytes":3}],"name":"flights","schema":2}'
    )
    assert manifest.digest == "5c81d0bf067acfc372b8bd96731d7521da7c69ad7de3ebe2a6a0a8c107024124"
