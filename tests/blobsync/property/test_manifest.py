"""Laws of manifests: one canonical form, and no hostile manifest is accepted."""

from __future__ import annotations

import hashlib
import json
import random
import tracemalloc
import unicodedata
from pathlib import PurePosixPath

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from blobsync import Artifact, BlobSyncError, InvalidManifestError, Manifest, Role
from blobsync.names import are_digests, collision, first_path_fault, is_digest, path_fault
from blobsync.release.manifest import CHUNK_BYTES, MAX_ARTIFACTS, Blob, chunk_count, encode
from tests.thorough import examples

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
    assert manifest.digest == hashlib.sha256(manifest.canonical).hexdigest()
    data = bytearray(manifest.canonical)
    data[place % len(data)] ^= byte

    try:
        changed = Manifest.parse(bytes(data))
    except InvalidManifestError:
        return
    assert changed.canonical == bytes(data)
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


@settings(max_examples=examples(100))
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
        "a/" * 64 + "a",
    ],
)
def test_hostile_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidManifestError):
        Manifest("p", (Artifact(path, 0, "0" * 64, Role.CODE, False),))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "a"),
        ("a", "A"),
        ("a", "a/b"),
        ("A/x", "a/y"),
        ("d/ß", "d/ss"),
        ("x/y/z", "x/y"),
        ("Ä", "ä"),
        ("a", "a\u200b"),
    ],
)
def test_names_that_collide_somewhere_are_refused(one: str, other: str) -> None:
    items = (Artifact(one, 0, "0" * 64, Role.CODE, False), Artifact(other, 0, "0" * 64, Role.CODE, False))

    with pytest.raises(InvalidManifestError):
        Manifest("p", items)
    with pytest.raises(InvalidManifestError):
        Manifest("p", items[::-1])


@given(items=releases)
def test_canonical_form_is_json_with_sorted_keys(items: list[Artifact]) -> None:
    assume(collision(item.path for item in items) is None)
    manifest = Manifest("p", tuple(items))

    document = json.loads(manifest.canonical)

    assert json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() == (
        manifest.canonical
    )
    assert [Artifact(**{**item, "chunks": tuple(item["chunks"])}) for item in document["artifacts"]] == list(
        manifest.artifacts
    )


@pytest.mark.parametrize(
    "path", ['it"s', '"', 'a/"b"/c', "],", '{"chunks":[', "ä", "\U0001f680", "a\u00a0b", "'"]
)
def test_odd_path_is_read_back(path: str) -> None:
    manifest = Manifest("p", (Artifact(path, 0, "0" * 64, Role.CODE, False),))

    assert json.loads(manifest.canonical)["artifacts"][0]["path"] == path
    assert Manifest.parse(manifest.canonical) == manifest


def test_largest_release_is_read_back() -> None:
    items = tuple(
        Artifact(f"package_{number % 1000}/module_{number}.py", number, f"{number:064x}", Role.CODE, False)
        for number in range(MAX_ARTIFACTS)
    )
    manifest = Manifest("p", items)

    assert Manifest.parse(manifest.canonical) == manifest
    too_many = (Artifact("a", 0, "f" * 64, Role.CODE, False), *manifest.artifacts)
    with pytest.raises(InvalidManifestError, match="more than"):
        Manifest("p", too_many)
    with pytest.raises(InvalidManifestError, match="more than"):
        Manifest.parse(encode("p", too_many))


def test_manifest_of_twenty_thousand_files_takes_little_memory() -> None:
    data = Manifest(
        "p",
        tuple(
            Artifact(f"lib/package_{number % 200}/module_{number}.py", 9, f"{number:064x}", Role.CODE, False)
            for number in range(20_000)
        ),
    ).canonical
    tracemalloc.start()
    try:
        manifest = Manifest.parse(data)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(manifest.artifacts) == 20_000
    assert held < 8 << 20  # a process may use 64 MiB more than an interpreter
    assert peak < 16 << 20


any_paths = st.lists(
    st.lists(
        st.sampled_from(
            ["a", "A", "b", "..", ".", "", "a\\b", "a\0", "e\u0301", "ß", "ss", "\u200b", "x" * 256]
        ),
        min_size=1,
        max_size=70,
    ).map("/".join)
    | paths,
    max_size=5,
)


@given(listed=any_paths)
def test_many_paths_are_judged_as_each_by_itself(listed: list[str]) -> None:
    found = first_path_fault(listed)

    assert (found is None) == all(path_fault(path) is None for path in listed)
    if found is not None:
        assert path_fault(found[0]) == found[1]


@given(texts=st.lists(digests | st.sampled_from(["", "A" * 64, "0" * 63, "é" * 64, "\ud800" * 64, "0" * 65])))
def test_many_digests_are_judged_as_each_by_itself(texts: list[str]) -> None:
    assert are_digests(texts) == all(map(is_digest, texts))


few_paths = st.lists(st.sampled_from(["a", "A", "b", "ß", "ss", "SS", "a-"]), min_size=1, max_size=4).map(
    "/".join
)


@settings(max_examples=examples(150))
@given(listed=st.lists(few_paths | paths, max_size=12, unique=True))
def test_collisions_are_those_of_a_table_of_all_names(listed: list[str]) -> None:
    assume(first_path_fault(listed) is None)
    seen: dict[str, str] = {}
    collides = False
    for path in listed:
        segments = path.split("/")
        for depth in range(1, len(segments) + 1):
            written = "/".join(segments[:depth]) + ("/" if depth < len(segments) else "")
            folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", written).casefold()).rstrip(
                "/"
            )
            collides |= seen.setdefault(folded, written) != written
    found = collision(listed)

    assert (found is not None) == collides
    assert found is None or collision(found) is not None  # the two collide without the others, too


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
        '{"artifacts":[],"name":"p","schema":02}',
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
