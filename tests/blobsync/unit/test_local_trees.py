"""Trees are complete, verified and read-only; a tree in which anything has changed is made again."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blobsync.errors import BlobMissingError
from blobsync.local import tree_check
from blobsync.local.disk import sync_file_system
from blobsync.local.store import LocalStore
from tests.blobsync.local_store_samples import Sample, contents, fill, flip_a_byte_unseen, overwrite, sample

LARGE = bytes(range(256)) * (20 << 10)
FILES = {
    "run.sh": b"#!",
    "lib/a.py": b"1",
    "lib/deep/b.py": b"2" * 3000,
    "same.txt": b"#!",
    "empty": b"",
    "data/large": LARGE,
    "data/tool": LARGE,
}
EXECUTABLE = {"run.sh", "data/tool"}


@pytest.fixture
def release(local: LocalStore) -> Sample:
    return fill(local, sample(FILES, executable=EXECUTABLE, members=2))


def test_tree_has_the_files_read_only_and_executable_as_told(local: LocalStore, release: Sample) -> None:
    tree = local.materialise(release.manifest.ref)

    assert contents(tree) == FILES
    for path in tree.rglob("*"):
        name = path.relative_to(tree).as_posix()
        executable = path.is_dir() or name in EXECUTABLE
        assert stat.S_IMODE(path.stat().st_mode) == (0o555 if executable else 0o444), name
    assert stat.S_IMODE(tree.stat().st_mode) == 0o555
    blob = next(item for item in release.objects if release.objects[item] == LARGE)
    assert (tree / "data/large").stat().st_ino == local._objects.path(blob).stat().st_ino
    assert (tree / "data/tool").stat().st_ino != local._objects.path(blob).stat().st_ino


def test_record_of_a_tree_that_cannot_be_written_leaves_no_file(
    local: LocalStore, release: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.replace

    def no_room(path: Path, target: Path) -> Path:
        if target.suffix == ".files":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, target)

    monkeypatch.setattr(Path, "replace", no_room)
    for _ in range(3):
        local.materialise(release.manifest.ref)

    session = local.context.session.new_path().parent
    assert [path.name for path in session.iterdir()] == ["lock"]


def test_modes_do_not_depend_on_the_umask(local: LocalStore, release: Sample) -> None:
    before = os.umask(0o077)
    try:
        tree = local.materialise(release.manifest.ref)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tree / "lib/a.py").stat().st_mode) == 0o444
    assert stat.S_IMODE((tree / "run.sh").stat().st_mode) == 0o555


def test_materialising_again_reads_nothing_and_changes_nothing(
    local: LocalStore, release: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = local.materialise(release.manifest.ref).stat().st_ino

    def refuse(*_args: object, **_named: object) -> None:
        raise AssertionError("the tree was hashed")

    monkeypatch.setattr("blobsync.local.tree_check.verify_object", refuse)
    assert local.materialise(release.manifest.ref).stat().st_ino == before


def _replace_file(tree: Path) -> None:
    (tree / "same.txt").unlink()
    (tree / "same.txt").write_bytes(b"evil")


def _swap_for_equal_sized(tree: Path) -> None:
    (tree / "same.txt").unlink()
    (tree / "same.txt").write_bytes(b"??")
    (tree / "same.txt").chmod(0o444)


def _link_folder(tree: Path) -> None:
    (tree / "lib").rename(tree.parent / "elsewhere")
    (tree / "lib").symlink_to(tree.parent / "elsewhere")


@pytest.mark.parametrize(
    "damage",
    [
        _replace_file,
        _swap_for_equal_sized,
        _link_folder,
        lambda tree: overwrite(tree / "run.sh", b"evil"),
        lambda tree: overwrite(tree / "data/tool", b"x" * len(LARGE)),
        lambda tree: (tree / "lib/a.py").unlink(),
        lambda tree: (tree / "extra.py").write_bytes(b"evil"),
        lambda tree: (tree / "lib/extra.py").symlink_to("/etc/passwd"),
        lambda tree: (tree / "run.sh").chmod(0o444),
        lambda tree: (tree / "same.txt").chmod(0o644),
    ],
    ids=[
        "replaced",
        "swapped",
        "folder-linked",
        "written",
        "tool-written",
        "removed",
        "added",
        "linked",
        "mode",
        "writable",
    ],
)
def test_damaged_tree_is_made_anew(
    local: LocalStore, release: Sample, damage: Callable[[Path], object]
) -> None:
    tree = local.materialise(release.manifest.ref)
    for folder in (tree, tree / "lib"):
        folder.chmod(0o755)
    damage(tree)

    assert local.materialise(release.manifest.ref) == tree
    assert contents(tree) == FILES


@pytest.mark.parametrize("record", [None, b"", b"BSTREE1\n garbage"])
def test_tree_without_its_record_is_hashed_and_stays(
    local: LocalStore, release: Sample, record: bytes | None
) -> None:
    tree = local.materialise(release.manifest.ref)
    path = tree.with_name(f"{tree.name}.files")
    path.unlink() if record is None else path.write_bytes(record)
    before = tree.stat().st_ino

    assert local.materialise(release.manifest.ref).stat().st_ino == before
    assert path.stat().st_size > 100  # the record was written again

    path.unlink()
    flip_a_byte_unseen(tree / "lib/deep/b.py")
    assert local.materialise(release.manifest.ref).stat().st_ino != before
    assert contents(tree) == FILES


def test_record_of_another_release_vouches_for_nothing(local: LocalStore, release: Sample) -> None:
    other = fill(local, sample({**FILES, "same.txt": b"##"}, executable=EXECUTABLE, name="q"))
    tree, other_tree = local.materialise(release.manifest.ref), local.materialise(other.manifest.ref)
    records = [path.with_name(f"{path.name}.files") for path in (tree, other_tree)]
    records[0].write_bytes(records[1].read_bytes())

    assert contents(local.materialise(release.manifest.ref)) == FILES


def test_bytecode_that_python_left_in_a_tree_is_removed_because_nothing_verifies_it(
    local: LocalStore, release: Sample
) -> None:
    tree = local.materialise(release.manifest.ref)
    (tree / "lib").chmod(0o755)
    (tree / "lib/__pycache__").mkdir()
    (tree / "lib/__pycache__/a.pyc").write_bytes(b"cached")
    (tree / "lib").chmod(0o555)

    assert contents(local.materialise(release.manifest.ref)) == FILES


def test_files_that_another_tree_has_are_linked_and_no_pack_is_read_for_them(
    local: LocalStore, release: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = local.materialise(release.manifest.ref)
    new = fill(local, sample({**FILES, "extra.sh": b"1"}, executable={*EXECUTABLE, "extra.sh"}, members=2))
    tree = local.materialise(new.manifest.ref)

    assert contents(tree) == dict(new.files)
    for name in ("lib/a.py", "lib/deep/b.py", "same.txt", "run.sh"):
        assert (tree / name).stat().st_ino == (old / name).stat().st_ino, name
    # The bytes are the same, but a hard link would also share the file mode.
    assert (tree / "extra.sh").stat().st_ino != (old / "lib/a.py").stat().st_ino
    assert stat.S_IMODE((tree / "extra.sh").stat().st_mode) == 0o555


def test_changed_file_of_another_tree_is_not_linked(local: LocalStore, release: Sample) -> None:
    old = local.materialise(release.manifest.ref)
    overwrite(old / "lib/a.py", b"X")
    new = fill(local, sample({**FILES, "extra": b"3"}, executable=EXECUTABLE))

    assert contents(local.materialise(new.manifest.ref)) == dict(new.files)


def test_record_without_its_tree_is_no_hindrance(local: LocalStore, release: Sample) -> None:
    old = local.materialise(release.manifest.ref)
    old.rename(local.root / "gone")
    new = fill(local, sample({**FILES, "extra": b"3"}, executable=EXECUTABLE))

    assert contents(local.materialise(new.manifest.ref)) == dict(new.files)


def test_damage_that_scrub_finds_in_a_shared_file_is_mended_in_every_tree(
    local: LocalStore, release: Sample
) -> None:
    new = fill(local, sample({**FILES, "extra": b"3"}, executable=EXECUTABLE))
    old_tree, new_tree = local.materialise(release.manifest.ref), local.materialise(new.manifest.ref)
    assert (old_tree / "lib/deep/b.py").samefile(new_tree / "lib/deep/b.py")
    flip_a_byte_unseen(old_tree / "lib/deep/b.py")

    assert not local.verify(release.manifest.ref)  # the pack is undamaged, so no object is missing
    assert contents(local.materialise(new.manifest.ref)) == dict(new.files)
    assert contents(local.materialise(release.manifest.ref)) == FILES
    assert len(list((local.root / "quarantine").iterdir())) == 1


def test_byte_flipped_unseen_in_any_object_is_found_by_verify_and_healed(
    local: LocalStore, release: Sample
) -> None:
    tree = local.materialise(release.manifest.ref)
    for item, data in release.objects.items():
        for at in (0, len(data) // 2, len(data) - 1):
            flip_a_byte_unseen(local._objects.path(item), at)
            assert local.has(item)  # the metadata do not show the damage
            assert local.verify(release.manifest.ref).objects == (item,)
            fill(local, release)
    assert local.materialise(release.manifest.ref) == tree
    assert contents(tree) == FILES


def test_link_to_a_damaged_object_is_removed_from_the_tree_until_it_is_made_again(
    local: LocalStore, release: Sample
) -> None:
    tree = local.materialise(release.manifest.ref)
    blob = next(item for item in release.objects if release.objects[item] == LARGE)
    flip_a_byte_unseen(local._objects.path(blob))

    with (tree / "data/large").open("rb") as reader:
        assert local.verify(release.manifest.ref).objects == (blob,)
        assert not (tree / "data/large").exists()
        fill(local, release)
        assert contents(local.materialise(release.manifest.ref)) == FILES
        assert len(reader.read()) == len(LARGE)  # of the old file


def test_damaged_pack_makes_no_tree(local: LocalStore, release: Sample) -> None:
    for pack in release.packs:
        flip_a_byte_unseen(local._objects.path(pack), 8)  # a byte of its first frame
        assert local.has(pack)
        with pytest.raises(BlobMissingError):
            local.materialise(release.manifest.ref)
        assert local.missing(release.known).objects == (pack,)
        fill(local, release)
    assert contents(local.materialise(release.manifest.ref)) == FILES


def test_damaged_large_executable_makes_no_tree_and_goes_to_quarantine(local: LocalStore) -> None:
    release = fill(local, sample({"tool": LARGE}, executable={"tool"}))
    (blob,) = release.objects
    flip_a_byte_unseen(local._objects.path(blob))
    assert local.has(blob)

    with pytest.raises(BlobMissingError):
        local.materialise(release.manifest.ref)
    assert local.missing(release.known).objects == (blob,)
    assert len(list((local.root / "quarantine").iterdir())) == 1
    fill(local, release)
    assert contents(local.materialise(release.manifest.ref)) == {"tool": LARGE}


def test_verify_tells_how_many_bytes_it_read_and_stops_when_told(local: LocalStore, release: Sample) -> None:
    local.materialise(release.manifest.ref)
    told: list[int] = []
    local.verify(release.manifest.ref, on_progress=told.append)
    assert sum(told) >= sum(item.size_bytes for item in release.objects)

    class StopError(Exception):
        pass

    def stop(_size_bytes: int) -> None:
        raise StopError

    with pytest.raises(StopError):
        local.verify(release.manifest.ref, on_progress=stop)
    assert not local.missing(release.known)


@pytest.mark.parametrize("has_syncfs", [True, False])
def test_large_tree_is_put_on_the_disk_by_one_call_where_there_is_one(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, has_syncfs: bool
) -> None:
    calls, fsyncs = list[int](), list[int]()
    fsync = os.fsync
    big = fill(local, sample({f"d{number % 7}/f{number}": b"%d" % number for number in range(200)}))

    def sync(fd: int) -> bool:
        calls.append(fd)
        return has_syncfs and sync_file_system(fd)

    def counted(fd: int) -> None:
        fsyncs.append(fd)
        fsync(fd)

    monkeypatch.setattr("blobsync.local.trees.sync_file_system", sync)
    monkeypatch.setattr(os, "fsync", counted)
    local.materialise(big.manifest.ref)

    assert len(calls) == 1
    assert (len(fsyncs) > 200) == (not has_syncfs)


def test_damage_in_a_pack_that_is_needed_as_a_whole_makes_no_tree(local: LocalStore) -> None:
    release = fill(local, sample({"a": b"1" * 9000, "b": b"2" * 9000}, compress=False))
    (pack,) = release.packs
    flip_a_byte_unseen(local._objects.path(pack), 5000)
    assert local.has(pack)

    with pytest.raises(BlobMissingError):
        local.materialise(release.manifest.ref)
    assert local.missing(release.known).objects == (pack,)


def test_tree_that_another_process_replaces_while_it_is_hashed_is_no_error(
    local: LocalStore, release: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = local.materialise(release.manifest.ref)
    (local.root / "trees" / f"{release.manifest.digest}.files").unlink()
    real = tree_check.verify_object

    def verify(*args: Any, **named: Any) -> str | None:
        """The other process has moved this tree away, and not yet put the new one in its place."""
        if tree.exists():
            tree.chmod(0o755)
            tree.rename(local.root / "aside")
        return real(*args, **named)

    monkeypatch.setattr(tree_check, "verify_object", verify)

    assert contents(local.materialise(release.manifest.ref)) == FILES


def test_other_tree_that_is_collected_while_files_to_link_are_searched_is_no_error(
    local: LocalStore, release: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = fill(local, sample({"other": b"1"}, name="q"))
    local.materialise(other.manifest.ref)
    record = local.root / "trees" / f"{other.manifest.digest}.files"
    real = Path.stat

    def stat_of(path: Path, **named: Any) -> os.stat_result:
        if path == record:
            record.unlink(missing_ok=True)
        return real(path, **named)

    monkeypatch.setattr(Path, "stat", stat_of)

    assert contents(local.materialise(release.manifest.ref)) == FILES


def test_damaged_file_with_the_longest_name_goes_to_quarantine(local: LocalStore) -> None:
    names = ["n" * 255, "ö" * 127, "other"]
    release = fill(local, sample({name: name.encode() for name in names}))
    tree = local.materialise(release.manifest.ref)
    for name in names:
        flip_a_byte_unseen(tree / name)

    local.scrub_tree(release.manifest)

    assert len(list((local.root / "quarantine").iterdir())) == len(names)
    assert stat.S_IMODE(tree.stat().st_mode) == 0o555
    assert contents(local.materialise(release.manifest.ref)) == dict(release.files)
