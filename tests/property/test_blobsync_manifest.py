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

digests = st.text("0123456789abcdef", min_size=64, max_size=64)
segments = st.text("abcXYZäß._- 09", min_size=1, max_size=12).filter(lambda text: text not in {".", ".."})
paths = st.lists(segments, min_size=1, max_size=4).map(
    lambda parts: unicodedata.normalize("NFC", "/".join(parts))
)
artifacts = st.builds(
    Artifact,
    path=paths,
    size_bytes=st.integers(0, 1 << 40),
    sha256=digests,
    role=st.sampled_from(Role),
    executable=st.booleans(),
)
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
    field=st.sampled_from(["path", "size_bytes", "sha256", "role", "executable"]),
    value=json_values,
)
def test_any_value_in_any_field_is_read_soundly_or_refused(field: str, value: object) -> None:
    item = {
        "path": "a",
        "size_bytes": 1,
        "sha256": "0" * 64,
        "role": "code",
        "executable": False,
        field: value,
    }
    data = json.dumps(
        {"artifacts": [item], "name": "p", "schema": 1},
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
        '{"artifacts":[],"name":"p","schema":2}',
        '{"artifacts":[],"name":"p","schema":true}',
        '{"artifacts":[],"name":"p","schema":1,"more":1}',
        '{"artifacts":[],"name":"../p","schema":1}',
        '{"artifacts":[],"artifacts":[],"name":"p","schema":1}',
        ' {"artifacts":[],"name":"p","schema":1}',
        '{"name":"p","artifacts":[],"schema":1}',
        "[" * 100_000,
        '{"artifacts":[],"name":"p","schema":' + "9" * 10_000 + "}",
    ],
)
def test_second_way_of_writing_a_manifest_is_refused(text: str) -> None:
    with pytest.raises(InvalidManifestError):
        Manifest.parse(text.encode())


def test_one_digest_cannot_have_two_sizes() -> None:
    with pytest.raises(InvalidManifestError, match="two sizes"):
        Manifest(
            "p",
            tuple(Artifact(name, size, "0" * 64, Role.CODE, False) for name, size in (("a", 1), ("b", 2))),
        )


def test_release_has_the_same_digest_for_ever() -> None:
    manifest = Manifest("flights", (Artifact("main.py", 3, "ab" * 32, Role.CODE, False),))

    assert manifest.canonical == (
        b'{"artifacts":[{"executable":false,"path":"main.py","role":"code","sha256":"' + b"ab" * 32 + b'",'
        b'"size_bytes":3}],"name":"flights","schema":1}'
    )
    assert manifest.digest == "ec69cc718825eedca6a3f7c798e382dec4116fef49c63e6d261615256999990e"
