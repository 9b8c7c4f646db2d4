"""Collection on a disk: it marks, waits, then removes; never by absence, and never a large share at once."""

from __future__ import annotations

import fcntl
import os
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync.errors import GcRefusedError
from blobsync.local import gc as collection
from blobsync.local import store_context
from blobsync.local.disk import remove_tree
from blobsync.local.gc import gc
from blobsync.local.store import LocalStore
from tests.blobsync.local_store_samples import (
    Sample,
    bring,
    fill,
    flip_a_byte_unseen,
    leftover,
    packed,
    sample,
)

NOW = timedelta(0)
HOUR = timedelta(hours=1)


class Wall:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def kept(local: LocalStore, *names: str, name: str = "p") -> Sample:
    """Keep a release with one pack for each file, and make its tree."""
    release = fill(local, sample({path: path.encode() for path in names}, name=name, members=1))
    local.materialise(release.manifest.ref)
    return release


def lacking(local: LocalStore, release: Sample) -> list[str]:
    return [item.path for item in local.missing(release.known).artifacts]


def test_collection_marks_first_and_removes_after_the_grace(local: LocalStore) -> None:
    old, new = kept(local, "a", "shared"), kept(local, "b", "shared")
    wall = Wall()

    first = gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall)
    wall.now_s += 3599
    early = gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall)
    wall.now_s += 1
    late = gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall)

    assert (first.removed, early.removed) == ((), ())
    assert set(late.removed) == set(first.marked)
    assert late.freed_bytes == first.marked_bytes > 0
    assert local.kept(old.manifest.ref) is None
    assert not list((local.root / "trees").glob(f"{old.manifest.digest}*"))
    assert lacking(local, old) == ["a"]
    assert lacking(local, new) == []
    assert local.materialise(new.manifest.ref).is_dir()
    assert gc(local, {new.manifest.digest}, grace=NOW).marked == ()


def test_collection_forgets_the_mark_of_what_is_wanted_again(local: LocalStore) -> None:
    old, new = kept(local, "a"), kept(local, "b")
    wall = Wall()
    gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall)
    wall.now_s += 1800
    gc(local, {new.manifest.digest, old.manifest.digest}, grace=HOUR, now_s=wall)
    wall.now_s += 1800
    gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall)
    wall.now_s += 1800

    assert gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall).removed == ()
    assert lacking(local, old) == []


def test_old_mark_does_not_count_for_what_was_fetched_anew(local: LocalStore) -> None:
    old, new = kept(local, "a"), kept(local, "b")
    wall = Wall()
    gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall)
    (pack,) = old.packs
    local._objects.path(pack).unlink()
    bring(local, pack, old.objects[pack])
    wall.now_s += 3600

    gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall)

    assert local.has(pack)


def test_clock_that_was_set_back_begins_the_grace_anew(local: LocalStore) -> None:
    kept(local, "a")
    new = kept(local, "b")
    wall = Wall()
    gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall)
    wall.now_s -= 900
    assert gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall).removed == ()
    wall.now_s += 900
    assert gc(local, {new.manifest.digest}, grace=HOUR, now_s=wall).removed == ()


def test_dry_run_says_what_would_go_and_changes_nothing(local: LocalStore) -> None:
    old, new = kept(local, "a"), kept(local, "b")
    assert gc(local, {new.manifest.digest}, grace=NOW, dry_run=True).marked
    assert not (local.root / "gc.json").exists()
    gc(local, {new.manifest.digest}, grace=NOW)
    told = gc(local, {new.manifest.digest}, grace=NOW, dry_run=True)
    assert lacking(local, old) == []

    done = gc(local, {new.manifest.digest}, grace=NOW)
    assert (done.removed, done.freed_bytes) == (told.removed, told.freed_bytes)
    assert lacking(local, old) == ["a"]


def test_collection_refuses_to_remove_everything_unless_told(local: LocalStore) -> None:
    release = kept(local, "a")

    with pytest.raises(GcRefusedError, match="allow_empty"):
        gc(local, set())
    assert lacking(local, release) == []

    for _ in range(2):
        gc(local, set(), allow_empty=True, grace=NOW)
    assert lacking(local, release) == ["a"]
    assert list((local.root / "packs").glob("*/*")) == []


def test_collection_refuses_to_remove_more_than_a_share_at_once_unless_told(local: LocalStore) -> None:
    old, new = kept(local, "a", "b", "c", "d"), kept(local, "e")
    gc(local, {new.manifest.digest}, grace=NOW)

    with pytest.raises(GcRefusedError, match="above the share"):
        gc(local, {new.manifest.digest}, grace=NOW)
    assert lacking(local, old) == []
    assert local.kept(old.manifest.ref) is not None

    gc(local, {new.manifest.digest}, grace=NOW, max_share=1.0)
    assert lacking(local, old) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("lost", [".json", ".layout", "never here"])
def test_collection_touches_no_object_while_a_wanted_release_is_unknown_here(
    local: LocalStore, lost: str
) -> None:
    release, other = kept(local, "a"), kept(local, "b")
    wanted = {release.manifest.digest}
    if lost == "never here":
        wanted.add("0" * 64)
    else:
        (local.root / "releases" / "p" / f"{release.manifest.digest}{lost}").unlink()

    for _ in range(3):
        report = gc(local, wanted, grace=NOW, max_share=1.0)

    assert "is not known here yet" in report.objects_kept_because
    assert lacking(local, release) == []
    assert lacking(local, other) == []


def test_collection_leaves_what_another_user_of_the_store_holds(local: LocalStore) -> None:
    mine, other = kept(local, "a"), kept(local, "b")
    arriving = sample({"c": b"arriving", "d": b"not yet here"}, members=1)
    first = arriving.packs[0]
    bring(local, first, arriving.objects[first])
    with LocalStore(local.root) as neighbour:
        neighbour.hold({other.manifest.digest, arriving.manifest.digest})
        for _ in range(2):
            gc(local, {mine.manifest.digest}, grace=NOW, max_share=1.0)
        assert lacking(local, other) == []
        assert local.has(first)

    for _ in range(2):  # the other store is closed
        gc(local, {mine.manifest.digest}, grace=NOW, max_share=1.0)
    assert lacking(local, other) == ["b"]
    assert not local.has(first)
    assert lacking(local, mine) == []


def test_download_under_way_stays_and_a_forgotten_one_goes(local: LocalStore) -> None:
    mine = kept(local, "a")
    (busy, data), (idle, _) = packed([b"busy" * 100, b"idle" * 100], members=1).items()
    with local.receive(idle) or pytest.fail("busy") as incoming:
        os.pwrite(incoming.fd, b"some", 0)
    with local.receive(busy) or pytest.fail("busy") as incoming:
        os.pwrite(incoming.fd, data[:9], 0)
        for _ in range(2):
            gc(local, {mine.manifest.digest}, grace=NOW)
        assert [path.name for path in (local.root / "partial").iterdir()] == [busy.name]
        os.pwrite(incoming.fd, data[9:], 9)
        incoming.install()
    assert local.has(busy)


def test_room_that_an_empty_leftover_has_reserved_is_counted(local: LocalStore) -> None:
    mine = kept(local, "a")
    ((pack, _),) = packed([os.urandom(1 << 20)]).items()
    leftover(local, pack, b"")

    marked = gc(local, {mine.manifest.digest}, grace=NOW)
    removed = gc(local, {mine.manifest.digest}, grace=NOW)

    assert marked.marked == removed.removed == (f"partial/{pack.name}",)
    assert marked.marked_bytes == removed.freed_bytes >= pack.size_bytes


def test_release_named_like_the_folder_of_downloads_is_no_download(local: LocalStore) -> None:
    mine, old = kept(local, "a"), kept(local, "b", name="partial")
    records = sorted((local.root / "releases" / "partial").iterdir())

    marked = gc(local, {mine.manifest.digest}, grace=NOW, max_share=1.0)
    fd = os.open(records[0], os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)  # of a download, this would say that it is under way
        removed = gc(local, {mine.manifest.digest}, grace=NOW, max_share=1.0)
    finally:
        os.close(fd)

    assert marked.marked == removed.removed
    assert marked.marked_bytes < 4096  # lengths, not whole blocks of the disk
    assert local.kept(old.manifest.ref) is None


def test_download_that_went_on_since_it_was_marked_stays(local: LocalStore) -> None:
    mine = kept(local, "a")
    ((pack, data),) = packed([b"slow" * 100]).items()
    with local.receive(pack) or pytest.fail("busy") as incoming:
        os.pwrite(incoming.fd, data[:4], 0)
    gc(local, {mine.manifest.digest}, grace=NOW)
    with local.receive(pack) or pytest.fail("busy") as incoming:
        os.pwrite(incoming.fd, data[4:8], 4)
    os.utime(local.root / "partial" / pack.name)

    assert gc(local, {mine.manifest.digest}, grace=NOW).removed == ()
    assert len(gc(local, {mine.manifest.digest}, grace=NOW).removed) == 1


def test_quarantine_is_collected(local: LocalStore) -> None:
    mine = kept(local, "a")
    flip_a_byte_unseen(local._objects.path(mine.packs[0]))
    local.verify(mine.manifest.ref)
    fill(local, mine)
    for _ in range(2):
        gc(local, {mine.manifest.digest}, grace=NOW)
    assert list((local.root / "quarantine").iterdir()) == []
    assert lacking(local, mine) == []


def test_file_that_disappears_before_it_is_removed_does_not_end_the_collection(tmp_path: Path) -> None:
    meddle = [False]

    def step(name: str) -> None:
        """Another process removes the oldest file of the quarantine."""
        if meddle[0] and name == "gc-move":
            (tmp_path / "quarantine" / "old").unlink(missing_ok=True)

    with LocalStore(tmp_path, on_step=step) as local:
        kept = fill(local, sample({"a": b"1"}))
        for name in ("new", "old"):
            (tmp_path / "quarantine" / name).write_bytes(b"damaged")
        keep = {kept.manifest.digest}
        gc(local, keep, grace=timedelta(0))
        meddle[0] = True

        gc(local, keep, grace=timedelta(0))

        assert list((tmp_path / "quarantine").iterdir()) == []


def is_free(lock: Path) -> bool:
    with lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_trees_are_measured_and_removed_while_other_processes_may_use_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LocalStore(tmp_path) as local:
        wanted, gone = fill(local, sample({"a": b"1"})), fill(local, sample({"b": b"2"}, name="q"))
        local.materialise(gone.manifest.ref)
        measured, removed = collection._tree_size, collection.remove_tree
        free: list[bool] = []
        monkeypatch.setattr(
            collection, "_tree_size", lambda path: free.append(is_free(tmp_path / "LOCK")) or measured(path)
        )
        monkeypatch.setattr(
            collection, "remove_tree", lambda path: free.append(is_free(tmp_path / "LOCK")) or removed(path)
        )
        for _ in range(2):
            gc(local, {wanted.manifest.digest}, grace=timedelta(0), max_share=1.0)

    assert len(free) == 4
    assert all(free)


def test_files_are_listed_while_other_processes_may_use_the_store_and_what_they_do_then_counts(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, old, held = kept(local, "a"), kept(local, "b", name="q"), kept(local, "c", name="r")
    keep, (fresh,) = {mine.manifest.digest}, old.packs
    gc(local, keep, grace=NOW, max_share=1.0)
    listed, free = collection._listed, list[bool]()

    with LocalStore(local.root) as neighbour:

        def listed_then_used(root: Path) -> object:
            found = listed(root)
            free.append(is_free(root / "LOCK"))
            local._objects.path(fresh).unlink()
            bring(local, fresh, old.objects[fresh])
            neighbour.hold({held.manifest.digest})
            return found

        monkeypatch.setattr(collection, "_listed", listed_then_used)
        gc(local, keep, grace=NOW, max_share=1.0)

        assert free == [True]
        assert local.has(fresh)
        assert local.kept(old.manifest.ref) is None
        assert lacking(local, held) == []


def test_files_of_dead_processes_are_removed_while_other_processes_may_use_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LocalStore(tmp_path).close()
    for name in ("one", "other"):
        (tmp_path / "sessions" / name / "part-0").mkdir(parents=True)
    free: list[bool] = []
    monkeypatch.setattr(
        store_context,
        "remove_tree",
        lambda path: free.append(is_free(tmp_path / "LOCK")) or remove_tree(path),
    )

    with LocalStore(tmp_path) as local:
        own = local.context.session.new_path().parent
        assert list((tmp_path / "sessions").iterdir()) == [own]
        assert [path.name for path in own.iterdir()] == ["lock"]
        assert free == [True, True]
