"""The index and the records of trees, truncated or changed at any byte: never a wrong answer or an error."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blobsync.local.disk import FileIdentity, remove_tree
from blobsync.local.index import VerifiedIndex
from blobsync.local.store import LocalStore
from blobsync.local.tree_check import TreeFile, TreeFolder, TreeRecord
from tests.blobsync.local_store_samples import Sample, contents, fill, flip_a_byte_unseen, sample

ENTRIES = {
    f"packs/{number:02x}/{number:064x}": (FileIdentity(number, -number, 2**40 + number), f"{number:064x}")
    for number in range(5)
}


def written(path: Path) -> bytes:
    index = VerifiedIndex(path, path.with_name("part"))
    for place, (found, digest) in ENTRIES.items():
        index.verified(place, found, digest)
    index.close()
    return path.read_bytes()


def check(path: Path) -> int:
    """Check that its remaining entries are right, and that it still works. Returns how many remain."""
    index = VerifiedIndex(path, path.with_name("part"))
    known = [index.digest(place, found) for place, (found, _) in ENTRIES.items()]
    for place, (found, digest) in ENTRIES.items():
        assert index.digest(place, found) in {None, digest}
        assert index.digest(place, found._replace(inode=7)) is None
    index.verified("new", FileIdentity(1, 2, 3), "ab")
    index.close()
    again = VerifiedIndex(path, path.with_name("part"))
    assert again.digest("new", FileIdentity(1, 2, 3)) == "ab"
    again.close()
    return sum(digest is not None for digest in known)


def test_index_cut_at_any_byte_tells_no_lie_and_keeps_the_lines_before(tmp_path: Path) -> None:
    data = written(tmp_path / "index")
    for at in range(len(data) + 1):
        (tmp_path / "index").write_bytes(data[:at])
        assert check(tmp_path / "index") == data[:at].count(b"\n")


def test_index_with_any_byte_changed_tells_no_lie_and_loses_a_line_or_two(tmp_path: Path) -> None:
    data = written(tmp_path / "index")
    for at in range(len(data)):
        for mask in (0x01, 0x20, 0x80):
            damaged = bytearray(data)
            damaged[at] ^= mask
            (tmp_path / "index").write_bytes(damaged)
            assert check(tmp_path / "index") >= len(ENTRIES) - 2


@given(st.binary(max_size=200), st.integers(0, 600))
def test_index_with_foreign_bytes_inside_tells_no_lie(
    tmp_path_factory: pytest.TempPathFactory, foreign: bytes, at: int
) -> None:
    path = tmp_path_factory.mktemp("index") / "index"
    data = written(path)
    path.write_bytes(data[:at] + foreign + data[at:])
    check(path)


def test_two_indexes_of_one_file_read_what_the_other_appends_even_after_it_was_written_anew(
    tmp_path: Path,
) -> None:
    one, two = (
        VerifiedIndex(tmp_path / "index", tmp_path / "part"),
        VerifiedIndex(tmp_path / "index", tmp_path / "part"),
    )
    found = FileIdentity(1, 2, 3)
    one.verified("a", found, "aa")
    assert two.digest("a", found) == "aa"
    two.forget("a")
    two.verified("b", found, "bb")
    assert one.digest("b", found) == "bb"
    (tmp_path / "index").replace(tmp_path / "old")  # like another process that writes it again
    (tmp_path / "index").write_bytes((tmp_path / "old").read_bytes())
    (tmp_path / "old").unlink()
    one.verified("c", found, "cc")
    two.close()
    three = VerifiedIndex(tmp_path / "index", tmp_path / "part")
    assert [three.digest(place, found) for place in "abc"] == [None, "bb", "cc"]
    one.close()
    three.close()


@pytest.fixture(scope="module")
def materialised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Sample, bytes]]:
    root = tmp_path_factory.mktemp("store")
    with LocalStore(root) as local:
        release = fill(local, sample({"a/b": b"1", "c": b"22", "d.sh": b"333"}, executable={"d.sh"}))
        tree = local.materialise(release.manifest.ref)
    data = (root / "trees" / f"{tree.name}.files").read_bytes()
    yield root, release, data
    remove_tree(root)


def test_record_of_a_tree_stays_as_it_is_stored() -> None:
    stored = (
        b"BSTREE1\n"
        + bytes.fromhex("0eb8fab4d9ee9e289608da94f78169976400106f02fc3c4ef511a7fb8cb288ca")
        + struct.pack("<II4Q4q", 2, 2, 1, 2**40, 3, 4, 10, -20, 30, 2**60)
        + bytes.fromhex("ab" * 32 + "cd" * 32)
        + "\nlib\na\nlib/ä".encode()
    )

    record = TreeRecord.parse(stored)

    assert record == TreeRecord(
        (TreeFolder("", 1, 10), TreeFolder("lib", 2**40, -20)),
        (TreeFile("a", 3, 30, "ab" * 32), TreeFile("lib/ä", 4, 2**60, "cd" * 32)),
    )
    assert record is not None
    assert record.encode() == stored


def test_record_of_a_tree_changed_or_cut_at_any_byte_is_none(
    materialised: tuple[Path, Sample, bytes],
) -> None:
    _, release, data = materialised
    whole = TreeRecord.parse(data)
    assert whole is not None
    assert whole.is_of(release.manifest)
    assert whole.encode() == data
    for at in range(len(data)):
        assert TreeRecord.parse(data[:at]) is None
        damaged = bytearray(data)
        damaged[at] ^= 1
        assert TreeRecord.parse(bytes(damaged)) is None


@given(st.data())
def test_store_with_damage_anywhere_gives_the_right_files_or_says_what_it_lacks(
    materialised: tuple[Path, Sample, bytes], tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root, release, _ = materialised
    copy = tmp_path_factory.mktemp("copy") / "store"
    shutil.copytree(root, copy)  # new inodes, so everything is hashed when it is read
    files = sorted(path for path in copy.rglob("*") if path.is_file() and path.name != "LOCK")
    victim = data.draw(st.sampled_from(files))
    if victim.stat().st_size:
        flip_a_byte_unseen(victim, data.draw(st.integers(0, victim.stat().st_size - 1)))
    with LocalStore(copy) as local:
        lacking = local.missing(release.known)
        assert not lacking or victim.parent.parent.name == "packs"
        fill(local, release)
        assert contents(local.materialise(release.manifest.ref)) == dict(release.files)
        assert not local.verify(release.manifest.ref)
    remove_tree(copy)


def test_line_after_a_torn_one_is_not_lost_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, found, write = (
        VerifiedIndex(tmp_path / "index", tmp_path / "part"),
        FileIdentity(1, 2, 3),
        os.write,
    )
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[: len(data) // 2]))
        index.verified("torn", found, "aa")
    index.verified("next", found, "bb")
    index.close()

    again = VerifiedIndex(tmp_path / "index", tmp_path / "part")
    assert (again.digest("torn", found), again.digest("next", found)) == (None, "bb")
    again.close()
