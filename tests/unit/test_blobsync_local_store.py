"""The local store: nothing unverified is ever seen, whatever dies or changes when."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import (
    Artifact,
    BlobMissingError,
    CorruptBlobError,
    GcRefusedError,
    LocalStore,
    LocalStoreError,
    Manifest,
    Role,
    gc,
)
from blobsync.local import store as local_store

STEPS = ["create", "write", "fsync", "rename", "fsync-folder", "index"]


class CrashedError(Exception):
    """The process died here."""


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def release(
    files: dict[str, bytes], *, executable: frozenset[str] = frozenset(), name: str = "p"
) -> Manifest:
    return Manifest(
        name,
        tuple(
            Artifact(path, len(data), sha(data), Role.CODE, path in executable)
            for path, data in files.items()
        ),
    )


def fill(local: LocalStore, files: dict[str, bytes]) -> None:
    for data in files.values():
        local.install(sha(data), len(data), [data])


def visible(local: LocalStore) -> list[Path]:
    return sorted(path for path in (local.root / "blobs").rglob("*") if path.is_file())


def overwrite(path: Path, data: bytes) -> None:
    """As a careless or hostile user with enough rights does."""
    path.chmod(0o644)
    path.write_bytes(data)


def flip_a_byte_unseen(path: Path) -> None:
    """As a failing disk does: other bytes, same size, same time, same inode."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    overwrite(path, bytes(data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore(tmp_path / "store") as opened:
        yield opened


def test_installed_blob_is_there_read_only_and_counts_after_reopening(tmp_path: Path) -> None:
    with LocalStore(tmp_path) as local:
        local.install(sha(b"data"), 4, [b"da", b"ta"])
        path = local.blob_path(sha(b"data"))

        assert local.has_blob(sha(b"data"))
        assert path.read_bytes() == b"data"
        assert stat.S_IMODE(path.stat().st_mode) == 0o444
    with LocalStore(tmp_path) as again:
        assert again.has_blob(sha(b"data"))


@pytest.mark.parametrize("chunks", [[b"dat"], [b"data", b"x"], [b"dato"], []])
def test_wrong_bytes_are_never_installed(local: LocalStore, chunks: list[bytes]) -> None:
    with pytest.raises(CorruptBlobError):
        local.install(sha(b"data"), 4, chunks)

    assert not local.has_blob(sha(b"data"))
    assert visible(local) == []


def test_reading_stops_when_more_comes_than_was_promised(local: LocalStore) -> None:
    taken = 0

    def endless() -> Iterator[bytes]:
        nonlocal taken
        while True:
            taken += 1
            yield b"x" * 1000

    with pytest.raises(CorruptBlobError):
        local.install(sha(b""), 2500, endless())
    assert taken == 3


@pytest.mark.parametrize("crash_at", STEPS)
def test_crash_at_any_step_of_an_install_leaves_no_unverified_blob_and_the_next_one_completes(
    tmp_path: Path, crash_at: str
) -> None:
    steps: list[str] = []

    def crash(step: str) -> None:
        steps.append(step)
        if step == crash_at:
            raise CrashedError(step)

    dying = LocalStore(tmp_path, on_step=crash)
    with pytest.raises(CrashedError):
        dying.install(sha(b"data"), 4, [b"data"])
    assert steps[-1] == crash_at
    for path in visible(dying):
        assert sha(path.read_bytes()) == path.name
    dying.close()

    with LocalStore(tmp_path) as after:
        after.install(sha(b"data"), 4, [b"data"])
        assert after.has_blob(sha(b"data"))
        assert [path.name for path in visible(after)] == [sha(b"data")]
        assert list((after.root / "sessions").glob("*/part-*")) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from blobsync import LocalStore
def kill(step):
    if step == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
LocalStore(Path(sys.argv[1]), on_step=kill).install(sys.argv[3], 4, [b"da", b"ta"])
"""


@pytest.mark.parametrize("step", ["write", "fsync", "rename", "index"])
def test_what_a_killed_process_left_unfinished_is_removed_by_the_next(tmp_path: Path, step: str) -> None:
    died = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), step, sha(b"data")], check=False)
    assert died.returncode == -9
    left = list((tmp_path / "sessions").iterdir())
    assert len(left) == 1

    with LocalStore(tmp_path) as after:
        assert not left[0].exists()
        complete = after.has_blob(sha(b"data"))
        assert complete == (step == "index")
        assert complete == bool(visible(after))


RACER = """
import hashlib, sys
from pathlib import Path
from blobsync import LocalStore, Manifest
with LocalStore(Path(sys.argv[1])) as local:
    manifest = Manifest.parse(sys.stdin.buffer.read())
    for number in range(200):
        data = str(number).encode() * 50
        local.install(hashlib.sha256(data).hexdigest(), len(data), [data])
    local.install_manifest(manifest)
    print(local.materialise(manifest))
"""


def test_two_processes_fill_one_store_at_once(tmp_path: Path) -> None:
    files = {f"f{number}": str(number).encode() * 50 for number in range(200)}
    manifest = release(files)
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write(manifest.canonical)
        racer.stdin.close()
    ends = [(racer.wait(240), racer.stdout.read() if racer.stdout else b"") for racer in racers]

    assert [code for code, _ in ends] == [0, 0]
    with LocalStore(tmp_path) as local:
        assert local.verify(manifest) == ()
        tree = local.materialise(manifest)
        assert {path.name: path.read_bytes() for path in tree.iterdir()} == files
        assert list((tmp_path / "quarantine").iterdir()) == []


def test_overwritten_blob_does_not_count_and_goes_to_quarantine(local: LocalStore) -> None:
    fill(local, {"a": b"data"})
    overwrite(local.blob_path(sha(b"data")), b"evil")

    assert not local.has_blob(sha(b"data"))
    assert [path.read_bytes() for path in (local.root / "quarantine").iterdir()] == [b"evil"]


def test_touched_blob_counts_again_after_it_was_hashed(local: LocalStore) -> None:
    fill(local, {"a": b"data"})
    os.utime(local.blob_path(sha(b"data")), ns=(1, 1))

    assert local.has_blob(sha(b"data"))


def test_blob_replaced_by_a_link_does_not_count(local: LocalStore, tmp_path: Path) -> None:
    fill(local, {"a": b"data"})
    (tmp_path / "elsewhere").write_bytes(b"data")
    local.blob_path(sha(b"data")).unlink()
    local.blob_path(sha(b"data")).symlink_to(tmp_path / "elsewhere")

    assert not local.has_blob(sha(b"data"))


def test_verify_finds_a_byte_that_flipped_unseen_and_a_new_copy_heals_blob_and_tree(
    local: LocalStore,
) -> None:
    files = {"a": b"some data", "b": b"other data"}
    manifest = release(files)
    fill(local, files)
    tree = local.materialise(manifest)
    flip_a_byte_unseen(local.blob_path(sha(b"some data")))
    assert local.has_blob(sha(b"some data"))  # what a look at metadata cannot see

    assert [item.path for item in local.verify(manifest)] == ["a"]
    assert not local.has_blob(sha(b"some data"))
    with pytest.raises(BlobMissingError):
        local.materialise(manifest)

    fill(local, files)
    assert local.materialise(manifest) == tree
    assert (tree / "a").read_bytes() == b"some data"


def test_blob_on_a_bad_sector_goes_to_quarantine(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = release({"a": b"data"})
    fill(local, {"a": b"data"})

    def unreadable(path: Path, going_on: object) -> tuple[str, object]:
        raise OSError(errno.EIO, "Input/output error", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(local_store, "hash_file", unreadable)
        assert [item.path for item in local.verify(manifest)] == ["a"]

    assert not local.has_blob(sha(b"data"))
    assert len(list((local.root / "quarantine").iterdir())) == 1


@pytest.mark.parametrize("damage", [b"", b"garbage", "cut", "delete", "lie"])
def test_store_without_its_index_verifies_again(tmp_path: Path, damage: bytes | str) -> None:
    files = {"a": b"good", "b": b"also good"}
    with LocalStore(tmp_path) as local:
        fill(local, files)
    index = tmp_path / "verified"
    if isinstance(damage, bytes):
        index.write_bytes(damage)
    elif damage == "cut":
        index.write_bytes(index.read_bytes()[:-20])
    elif damage == "delete":
        index.unlink()
    else:  # a line that would vouch for other bytes, but whose check sum does not fit
        index.write_bytes(index.read_bytes().replace(sha(b"good").encode(), sha(b"evil").encode()))
    flip_a_byte_unseen(tmp_path / "blobs" / sha(b"good")[:2] / sha(b"good"))

    with LocalStore(tmp_path) as again:
        # Cut within the second line, the first still vouches; that is what an index is. The scrub finds it.
        assert again.has_blob(sha(b"good")) == (damage == "cut")
        assert again.has_blob(sha(b"also good"))


def test_index_stays_small_when_files_are_verified_again_and_again(tmp_path: Path) -> None:
    with LocalStore(tmp_path) as local:
        fill(local, {"a": b"data"})
        for _ in range(2000):
            assert local.check_file(local.blob_path(sha(b"data")), sha(b"data"), again=True)
        before = (tmp_path / "verified").stat().st_size
    with LocalStore(tmp_path) as again:
        assert (tmp_path / "verified").stat().st_size < before / 100
        assert again.has_blob(sha(b"data"))


def test_tree_has_the_files_read_only_and_executable_as_told(local: LocalStore) -> None:
    files = {"run.sh": b"#!", "lib/a.py": b"1", "lib/deep/b.py": b"2", "same.txt": b"#!", "empty": b""}
    fill(local, files)

    tree = local.materialise(release(files, executable=frozenset({"run.sh"})))

    found = {path.relative_to(tree).as_posix(): path for path in tree.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == files
    assert stat.S_IMODE(found["run.sh"].stat().st_mode) == 0o555
    assert stat.S_IMODE(found["same.txt"].stat().st_mode) == 0o444
    assert stat.S_IMODE((tree / "lib/deep").stat().st_mode) == 0o555
    assert found["lib/a.py"].stat().st_ino == local.blob_path(sha(b"1")).stat().st_ino


def test_materialising_again_changes_nothing(local: LocalStore) -> None:
    files = {"a": b"1", "x.sh": b"2"}
    fill(local, files)
    manifest = release(files, executable=frozenset({"x.sh"}))
    before = local.materialise(manifest).stat().st_ino

    assert local.materialise(manifest).stat().st_ino == before


def _replace_file(tree: Path) -> None:
    (tree / "a").unlink()
    (tree / "a").write_bytes(b"evil")


def _write_copy(tree: Path) -> None:
    overwrite(tree / "x.sh", b"evil")


@pytest.mark.parametrize(
    "damage",
    [
        _replace_file,
        _write_copy,
        lambda tree: (tree / "a").unlink(),
        lambda tree: (tree / "extra.py").write_bytes(b"evil"),
        lambda tree: (tree / "extra.py").symlink_to("/etc/passwd"),
        lambda tree: (tree / "x.sh").chmod(0o444),
    ],
    ids=["replaced", "written", "removed", "added", "linked", "mode"],
)
def test_damaged_tree_is_made_anew(local: LocalStore, damage: Callable[[Path], object]) -> None:
    files = {"a": b"1", "x.sh": b"2"}
    fill(local, files)
    manifest = release(files, executable=frozenset({"x.sh"}))
    tree = local.materialise(manifest)
    tree.chmod(0o755)
    damage(tree)

    assert local.materialise(manifest) == tree
    assert {path.name: path.read_bytes() for path in tree.iterdir()} == files


def test_byte_flipped_unseen_in_an_executable_copy_is_found_by_verify(local: LocalStore) -> None:
    files = {"x.sh": b"echo hello"}
    fill(local, files)
    manifest = release(files, executable=frozenset({"x.sh"}))
    tree = local.materialise(manifest)
    flip_a_byte_unseen(tree / "x.sh")

    assert local.verify(manifest) == ()  # the blob is good, so nothing is missing
    assert (local.materialise(manifest) / "x.sh").read_bytes() == b"echo hello"


def test_incomplete_release_is_neither_kept_nor_materialised(local: LocalStore) -> None:
    manifest = release({"a": b"1", "b": b"2"})
    fill(local, {"a": b"1"})

    assert [item.path for item in local.missing(manifest)] == ["b"]
    for call in (local.install_manifest, local.materialise):
        with pytest.raises(BlobMissingError, match="b "):
            call(manifest)
    assert local.manifest(manifest.ref) is None


def test_damaged_manifest_is_put_away(local: LocalStore) -> None:
    manifest = release({"a": b"1"})
    fill(local, {"a": b"1"})
    local.install_manifest(manifest)
    assert local.manifest(manifest.ref) == manifest
    overwrite(local.root / "releases" / "p" / f"{manifest.digest}.json", b"{}")

    assert local.manifest(manifest.ref) is None
    assert local.manifests() == []


def test_disk_that_refuses_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(LocalStoreError, match="check that the disk has room"):
        LocalStore(tmp_path / "file" / "store")


class Wall:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def kept(local: LocalStore, *names: str) -> Manifest:
    files = {name: name.encode() for name in names}
    manifest = release(files)
    fill(local, files)
    local.install_manifest(manifest)
    local.materialise(manifest)
    return manifest


def test_collection_marks_first_and_removes_after_the_grace(local: LocalStore) -> None:
    old, new = kept(local, "a", "shared"), kept(local, "b", "shared")
    wall, hour = Wall(), timedelta(hours=1)

    first = gc(local, {new.digest}, grace=hour, now_s=wall)
    wall.now_s += 3599
    early = gc(local, {new.digest}, grace=hour, now_s=wall)
    wall.now_s += 1
    late = gc(local, {new.digest}, grace=hour, now_s=wall)

    assert (first.removed, early.removed) == ((), ())
    assert set(late.removed) == set(first.marked)
    assert local.manifest(old.ref) is None
    assert not (local.root / "trees" / old.digest).exists()
    assert [item.path for item in local.missing(old)] == ["a"]
    assert local.missing(new) == ()
    assert local.materialise(new).is_dir()


def test_collection_forgets_the_mark_of_what_is_wanted_again(local: LocalStore) -> None:
    old, new = kept(local, "a"), kept(local, "b")
    wall, hour = Wall(), timedelta(hours=1)
    gc(local, {new.digest}, grace=hour, now_s=wall)
    wall.now_s += 1800
    gc(local, {new.digest, old.digest}, grace=hour, now_s=wall)
    wall.now_s += 1800
    gc(local, {new.digest}, grace=hour, now_s=wall)
    wall.now_s += 1800

    assert gc(local, {new.digest}, grace=hour, now_s=wall).removed == ()
    assert local.missing(old) == ()


def test_collection_refuses_to_remove_everything_unless_told(local: LocalStore) -> None:
    manifest = kept(local, "a")

    with pytest.raises(GcRefusedError, match="allow_empty"):
        gc(local, set())
    assert local.missing(manifest) == ()

    for _ in range(2):
        gc(local, set(), allow_empty=True, grace=timedelta(0))
    assert local.missing(manifest) == manifest.artifacts


def test_collection_touches_no_blob_while_a_wanted_release_is_unknown_here(local: LocalStore) -> None:
    manifest = kept(local, "a")

    for _ in range(2):
        report = gc(local, {"0" * 64}, grace=timedelta(0))

    assert "0" * 64 in report.blobs_kept_because
    assert local.missing(manifest) == ()


def test_collection_leaves_what_another_user_of_the_store_holds(local: LocalStore) -> None:
    mine, other = kept(local, "a"), kept(local, "b")
    arriving = release({"c": b"arriving", "d": b"not yet here"})
    fill(local, {"c": b"arriving"})
    with LocalStore(local.root) as neighbour:
        neighbour.hold({other.digest, arriving.digest})
        for _ in range(2):
            gc(local, {mine.digest}, grace=timedelta(0))
        assert local.missing(other) == ()
        assert local.has_blob(sha(b"arriving"))

    for _ in range(2):  # the neighbour has gone
        gc(local, {mine.digest}, grace=timedelta(0))
    assert local.missing(other) == other.artifacts
    assert not local.has_blob(sha(b"arriving"))
    assert local.missing(mine) == ()
