"""A store whose process fails or dies before any step: no wrong file counts, and work can continue."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest

from blobsync.errors import LocalStoreError
from blobsync.local.disk_state import DiskCondition
from blobsync.local.gc import gc
from blobsync.local.store import LocalStore
from tests.blobsync.local_store_samples import Sample, bring, contents, fill, sample, visible
from tests.thorough import sampled

LARGE = bytes(range(256)) * (20 << 10)
CHUNKED = b"".join(bytes([number]) * (1 << 20) for number in range(17))


class CrashedError(Exception):
    """Stands for the death of the process."""


@cache
def first() -> Sample:
    return sample({"a": b"1" * 5000, "run.sh": b"#!", "large": LARGE, "c": CHUNKED}, executable={"run.sh"})


@cache
def second() -> Sample:
    return sample({"a": b"1" * 5000, "b/b": b"new"})


def everything(local: LocalStore) -> None:
    """Use every operation of a store once."""
    old, new = first(), second()
    local.materialise(fill(local, old).manifest.ref)
    local.materialise(fill(local, new).manifest.ref)
    for _ in range(2):
        gc(local, {new.manifest.digest}, grace=timedelta(0), max_share=1.0)
    local.verify(new.manifest.ref)


def steps_of(root: Path) -> list[str]:
    steps: list[str] = []
    with LocalStore(root, on_step=steps.append) as local:
        everything(local)
    return steps


def check_and_go_on(root: Path) -> None:
    """Check that verified files are correct, all work can be completed, and no other file is left."""
    with LocalStore(root) as local:
        for release in (first(), second()):
            for item, data in release.objects.items():
                if local.has(item):
                    assert local._objects.path(item).read_bytes() == data
            if local.kept(release.manifest.ref) and not local.missing(release.known):
                assert contents(local.materialise(release.manifest.ref)) == dict(release.files)
        assert list((root / "quarantine").iterdir()) == []
        everything(local)
        new = second()
        assert contents(local.materialise(new.manifest.ref)) == dict(new.files)
        assert [path.name for path in visible(root)] == [item.name for item in new.objects]
        assert local.releases() == [new.manifest.ref]
        assert list((root / "partial").iterdir()) == []
        left = {path.name for path in (root / "trees").iterdir()}
        assert left == {new.manifest.digest, f"{new.manifest.digest}.files"}
        assert len(list((root / "sessions").iterdir())) == 1
        assert [path.name for path in local.context.session.new_path().parent.iterdir()] == ["lock"]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return steps_of(tmp_path_factory.mktemp("steps"))


def test_every_kind_of_step_is_met(steps: list[str]) -> None:
    kinds = {"receive-open", "receive-reserve", "took", "verify", "fsync", "rename", "fsync-folder", "index"}
    kinds |= {"document-write", "document-fsync", "document-rename", "document-fsync-folder"}
    kinds |= {"tree-make", "tree-file", "tree-sync", "tree-rename", "tree-fsync-folder", "tree-record"}
    kinds |= {"gc-move", "gc-mark"}
    assert set(steps) == kinds


@pytest.mark.parametrize("offset", sampled(range(5), 1))
def test_error_before_any_step_leaves_nothing_false_and_the_next_try_completes(
    tmp_path: Path, steps: list[str], offset: int
) -> None:
    for number in range(offset, len(steps), 5):
        count = iter(range(len(steps)))

        def crash(_name: str, count: Iterator[int] = count, number: int = number) -> None:
            if next(count) == number:
                raise CrashedError

        root = tmp_path / str(number)
        with LocalStore(root, on_step=crash) as dying, pytest.raises(CrashedError):
            everything(dying)
        check_and_go_on(root)


@contextmanager
def failing(patch: pytest.MonkeyPatch, name: str, error: int, after: int) -> Iterator[list[int]]:
    """Make `os.<name>` fail after `after` successful calls. Yields a list with one entry for each call."""
    real: Callable[..., object] = getattr(os, name)
    calls: list[int] = []

    def call(*args: object, **named: object) -> object:
        calls.append(1)
        if len(calls) > after:
            raise OSError(error, os.strerror(error))
        return real(*args, **named)

    with patch.context() as inner:
        inner.setattr(os, name, call)
        yield calls


CONDITIONS = {
    28: DiskCondition.FULL,  # ENOSPC
    122: DiskCondition.FULL,  # EDQUOT
    30: DiskCondition.READ_ONLY,  # EROFS
    13: DiskCondition.DENIED,  # EACCES
    5: DiskCondition.FAILING,  # EIO
}


@pytest.mark.parametrize("error", sampled(CONDITIONS, 2))
@pytest.mark.parametrize("call", sampled(["write", "fsync", "fchmod", "mkdir", "open", "link", "pwrite"], 5))
def test_disk_that_fails_any_call_is_told_clearly_harms_nothing_and_heals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, call: str
) -> None:
    old, new = first(), second()
    failures = 0
    for after in (0, 1, 2, 5):
        with LocalStore(tmp_path / str(after)) as local:
            tree = local.materialise(fill(local, old).manifest.ref)
            with failing(monkeypatch, call, error, after):
                try:
                    local.materialise(fill(local, new).manifest.ref)
                except LocalStoreError as exc:
                    failures += 1
                    assert os.strerror(error) in str(exc)
                    assert local.disk_state().condition is CONDITIONS[error]
                    assert local.disk_state().reason == str(exc)
            assert contents(tree) == dict(old.files)
            assert not local.missing(old.known)

            assert contents(local.materialise(fill(local, new).manifest.ref)) == dict(new.files)
            assert local.disk_state().ok
            assert not local.verify(old.manifest.ref)
            assert list((local.root / "quarantine").iterdir()) == []
    assert failures or call == "link"  # without hard links a tree is made of copies


def test_failed_fsync_is_never_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = first()
    with LocalStore(tmp_path) as local:
        for item, data in release.objects.items():
            bring_folder = local._objects.path(item).parent
            bring_folder.mkdir(parents=True, exist_ok=True)
            with failing(monkeypatch, "fsync", 5, 0) as calls, pytest.raises(LocalStoreError):
                bring(local, item, data)
            assert len(calls) == 1
            assert list((tmp_path / "partial").iterdir()) == []  # the kernel may have dropped data
        assert visible(tmp_path) == []


def test_download_for_which_there_is_no_room_is_refused_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = first()
    with LocalStore(tmp_path) as local:
        monkeypatch.setattr("blobsync.local.disk_state.free_bytes", lambda _path: 4 << 20)
        item = next(item for item in release.objects if item.size_bytes == len(LARGE))
        with pytest.raises(LocalStoreError, match="make room"):
            local.receive(item)
        assert local.disk_state().condition is DiskCondition.FULL
        bring(local, release.packs[0], release.objects[release.packs[0]])  # small enough for the free space


@pytest.mark.parametrize("which", ["before it is opened", "while it is open"])
def test_folders_that_somebody_killed_has_made_are_flushed_before_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    release = first()
    with LocalStore(tmp_path / "model") as model:
        fill(model, release)
        places = [model._objects.path(item) for item in release.objects]
    begun = {path.relative_to(tmp_path / "model").parent for path in places} | {Path("releases/p")}
    flushed: set[str] = set()
    fsync = os.fsync

    def noted(fd: int) -> None:
        flushed.add(str(Path(f"/proc/self/fd/{fd}").readlink()))
        fsync(fd)

    root = tmp_path / "store"
    LocalStore(root).close()
    early = LocalStore(root) if which == "while it is open" else None
    for folder in begun:
        (root / folder).mkdir()  # as if killed now, before the parent folder was flushed
    monkeypatch.setattr(os, "fsync", noted)
    with early or LocalStore(root) as local:
        fill(local, release)

    assert {str(root / name) for name in ("packs", "blobs", "releases")} <= flushed
