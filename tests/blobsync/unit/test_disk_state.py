"""The recorded trouble of a disk is cleared only when new bytes were written to that disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from blobsync.errors import LocalStoreError
from blobsync.local import disk_state, incoming
from blobsync.local.disk_state import DiskCondition
from blobsync.local.store import LocalStore
from tests.blobsync.local_store_samples import Sample, bring, fill, leftover, sample

ENOENT, FULL = 2, 28


def refuse(*_: object) -> int:
    raise OSError(FULL, os.strerror(FULL))


@pytest.fixture
def release() -> Sample:
    return sample({"a": b"1" * 5000})


@pytest.fixture
def local(tmp_path: Path, release: Sample) -> Iterator[LocalStore]:
    """A store that has a release and its tree. Its last write failed because the disk was full."""
    with LocalStore(tmp_path) as opened:
        opened.materialise(fill(opened, release).manifest.ref)
        other = sample({"b": b"2" * 5000})
        with pytest.MonkeyPatch.context() as patch, pytest.raises(LocalStoreError):
            patch.setattr(os, "fsync", refuse)
            bring(opened, other.packs[0], other.objects[other.packs[0]])
        yield opened


def test_tree_that_is_there_already_says_nothing_of_the_disk(local: LocalStore, release: Sample) -> None:
    local.materialise(release.manifest.ref)

    assert local.disk_state().condition is DiskCondition.FULL


def test_release_that_is_kept_already_says_nothing_of_a_disk_that_still_takes_nothing(
    local: LocalStore, release: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", refuse)

    local.keep(release.known)

    assert local.disk_state().condition is DiskCondition.FULL
    assert [path.name for path in local.context.session.new_path().parent.iterdir()] == ["lock"]


def test_disk_that_takes_bytes_again_is_noticed_though_nothing_is_to_be_written(
    local: LocalStore, release: Sample
) -> None:
    local.keep(release.known)

    assert local.disk_state().ok


@pytest.mark.parametrize("what", ["object", "record", "tree"])
def test_whatever_is_written_shows_that_the_disk_takes_bytes_again(local: LocalStore, what: str) -> None:
    other = sample({"b": b"2" * 5000})
    pack = other.packs[0]
    if what == "object":
        bring(local, pack, other.objects[pack])
    else:
        state = local.context.disk.state
        fill(local, other)
        local.context.disk.state = state
        if what == "tree":
            local.materialise(other.manifest.ref)
        else:
            local.context.install_document(local.root / "releases" / "p" / "document", b"1")

    assert local.disk_state().ok


def test_what_is_held_cannot_be_noted_again_and_again_and_leaves_nothing_on_the_full_disk(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = local.context.session.new_path().parent
    before = {path.name for path in own.iterdir()}
    monkeypatch.setattr(os, "fsync", refuse)

    for _ in range(3):
        with pytest.raises(LocalStoreError, match="noting what is needed"):
            local.hold({"0" * 64})

    assert {path.name for path in own.iterdir()} == before


def test_change_of_the_condition_is_told_once(local: LocalStore, release: Sample) -> None:
    told: list[DiskCondition] = []
    end = local.subscribe_disk(lambda state: told.append(state.condition))
    health = local.context.disk

    health.failed("one", OSError(FULL, ""))
    health.wrote()
    health.wrote()
    health.failed("two", OSError(FULL, ""))
    health.failed("three", OSError(FULL, ""))
    end()
    health.wrote()

    assert told == [DiskCondition.OK, DiskCondition.FULL]


def test_file_that_vanished_is_no_trouble_of_the_disk(tmp_path: Path, release: Sample) -> None:
    pack = release.packs[0]

    def remove(step: str) -> None:
        if step == "rename":
            (tmp_path / "partial" / pack.name).unlink()

    with LocalStore(tmp_path, on_step=remove) as local:
        with pytest.raises(LocalStoreError, match="another process removed it") as caught:
            bring(local, pack, release.objects[pack])

        assert caught.value.retryable
        assert local.disk_state().ok


def test_file_that_vanished_does_not_clear_the_trouble_of_a_disk(local: LocalStore) -> None:
    told = local.context.disk.failed("reading a file", FileNotFoundError(ENOENT, os.strerror(ENOENT)))

    assert "another process removed it" in str(told)
    assert local.disk_state().condition is DiskCondition.FULL


def test_store_that_vanished_as_a_whole_is_trouble_of_the_disk(tmp_path: Path, release: Sample) -> None:
    """For example, the disk is not mounted any more."""
    with LocalStore(tmp_path / "store") as local:
        shutil.rmtree(tmp_path / "store")

        with pytest.raises(LocalStoreError):
            local.receive(release.packs[0])

        assert local.disk_state().condition is DiskCondition.FAILING


@pytest.mark.parametrize("why", ["too little is free", "it cannot be set aside"])
def test_object_without_room_is_refused_before_it_is_fetched_and_takes_none_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    pack = sample({"b": os.urandom(5000)}).packs[0]
    if why == "too little is free":
        monkeypatch.setattr(disk_state, "free_bytes", lambda _root: pack.size_bytes - 1)
    else:
        monkeypatch.setattr(incoming, "reserve", refuse)
    with LocalStore(tmp_path) as local:
        with pytest.raises(LocalStoreError, match="make room"):
            local.receive(pack)

        assert local.disk_state().condition is DiskCondition.FULL
    assert list((tmp_path / "partial").iterdir()) == []


@pytest.mark.parametrize("data", [b"", b"some bytes"], ids=["empty", "with-bytes"])
def test_room_that_a_leftover_has_reserved_is_not_needed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    pack = sample({"b": os.urandom(1 << 20)}).packs[0]
    with LocalStore(tmp_path) as local:
        path = leftover(local, pack, data)
        monkeypatch.setattr(disk_state, "free_bytes", lambda _root: 0)

        with local.receive(pack) or pytest.fail("busy") as coming:
            assert coming.missing() == [(len(data), pack.size_bytes - len(data))]

        # Received bytes stay for the next try. A file without bytes would only occupy reserved space.
        assert path.exists() == bool(data)


@pytest.mark.parametrize("data", [b"", b"x" * 8192], ids=["empty", "with-bytes"])
def test_leftover_without_reserved_room_needs_the_rest_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    pack = sample({"b": os.urandom(1 << 20)}).packs[0]
    with LocalStore(tmp_path) as local:
        path = leftover(local, pack, data, reserved=False)
        rest = pack.size_bytes - path.stat().st_blocks * 512

        monkeypatch.setattr(disk_state, "free_bytes", lambda _root: rest - 1)
        with pytest.raises(LocalStoreError, match="make room"):
            local.receive(pack)
        assert path.exists() == bool(data), "the received bytes stay"

        monkeypatch.setattr(disk_state, "free_bytes", lambda _root: rest)
        with local.receive(pack) or pytest.fail("busy") as coming:
            assert coming.missing() == [(len(data), pack.size_bytes - len(data))]
            assert os.fstat(coming.fd).st_blocks * 512 >= pack.size_bytes


def test_leftover_that_is_longer_than_its_object_gives_its_room_back(tmp_path: Path) -> None:
    pack = sample({"b": os.urandom(5000)}).packs[0]
    with LocalStore(tmp_path) as local:
        path = leftover(local, pack, b"x" * (2 << 20), reserved=False)

        with local.receive(pack) or pytest.fail("busy") as coming:
            assert coming.missing() == [(0, pack.size_bytes)]
            assert path.stat().st_blocks * 512 < 1 << 20
