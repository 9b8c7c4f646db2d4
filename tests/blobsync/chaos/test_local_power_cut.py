"""A local store whose host loses power at any call: no wrong file counts, no kept file is lost, work goes on.

NIMBUS_BLOB_CUTS: number of power cuts. NIMBUS_BLOB_SEED: the seed that a run printed, to repeat its choices.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import CorruptBlobError
from blobsync.local import trees
from blobsync.local.gc import gc
from blobsync.local.store import LocalStore
from tests.blobsync.chaos.power_cut import DIED, ENDED, OnlyWhatIsSure, cut, read_kept, run
from tests.blobsync.local_store_samples import Sample, bring, contents, fill, sample
from tests.report import number_from, say

CUTS = number_from("NIMBUS_BLOB_CUTS", 24)
SEED = number_from("NIMBUS_BLOB_SEED", secrets.randbelow(1_000_000))
LARGE = random.Random(1).randbytes((4 << 20) + 5000)
FIRST = sample({"a": b"a" * 5000, "lib/b": b"b" * 9000, "lib/c": b"c", "large": LARGE}, executable=["lib/c"])
SECOND = sample({"a": b"a" * 5000, "lib/b": b"other" * 999, "deep/er/d": b"d" * 300, "large": LARGE})
RELEASES = (FIRST, SECOND)


class Work:
    """The operations of a user of the store, and their results."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.aside, self.told = folder / "disk", folder / "aside", folder / "told"
        self.root = self.disk / "some" / "store"
        self.disk.mkdir(parents=True)
        self.aside.mkdir()
        self.told.write_text("")

    def __call__(self) -> None:
        with LocalStore(self.root) as local:
            self._bring(local, FIRST)
            local.materialise(FIRST.manifest.ref)
            self._bring(local, SECOND)
            local.materialise(SECOND.manifest.ref)
            local.hold({SECOND.manifest.digest})
            self._tell("gone", FIRST)
            for _ in range(2):
                gc(local, {SECOND.manifest.digest}, grace=timedelta(0), max_share=1.0)
            self._bring(local, FIRST)
            local.verify(FIRST.manifest.ref)
            local.materialise(FIRST.manifest.ref)

    def kept(self) -> list[Sample]:
        """Releases that the store reported as kept and that were not removed."""
        last = dict(reversed(line.split()) for line in self.told.read_text().splitlines())
        return [release for release in RELEASES if last.get(release.manifest.digest) == "kept"]

    def _bring(self, local: LocalStore, release: Sample) -> None:
        for item, data in release.objects.items():
            bring(local, item, data)
        assert not local.keep(release.known)
        self._tell("kept", release)

    def _tell(self, what: str, release: Sample) -> None:
        with self.told.open("a") as file:
            file.write(f"{what} {release.manifest.digest}\n")


@contextmanager
def working(folder: Path) -> Iterator[Work]:
    yield Work(folder)
    for path in (folder / "disk").rglob("*"):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(folder)


def sync(local: LocalStore, release: Sample) -> Sample:
    """Sync like a syncer: damage of a partial file is detected at its end, and the file is fetched again."""
    for item, data in release.objects.items():
        with suppress(CorruptBlobError):
            bring(local, item, data)
    return fill(local, release)


def check(work: Work) -> None:
    """Check the store after the cut."""
    with LocalStore(work.root) as local:
        for release in RELEASES:
            for item, data in release.objects.items():
                if local.has(item):
                    assert local._objects.path(item).read_bytes() == data
        for release in work.kept():
            kept = local.kept(release.manifest.ref)
            assert kept is not None, "a kept release is lost"
            assert not local.missing(kept), "a kept release lacks objects"
        for ref in local.releases():
            (release,) = (item for item in RELEASES if item.manifest.ref == ref)
            kept = local.kept(ref)
            if kept is not None and not local.missing(kept):
                assert kept.manifest == release.manifest
                assert contents(local.materialise(kept.manifest.ref)) == release.files
        for release in RELEASES:
            assert contents(local.materialise(sync(local, release).manifest.ref)) == release.files
            assert not local.verify(release.manifest.ref)
        for _ in range(2):
            gc(local, {FIRST.manifest.digest}, grace=timedelta(0), max_share=1.0)
        assert contents(local.materialise(FIRST.manifest.ref)) == FIRST.files
        assert local.releases() == [FIRST.manifest.ref]


def calls(folder: Path) -> int:
    """Number of calls at which the power may be cut."""
    with working(folder / "all") as work:
        assert run(work, work.disk, work.aside, 1 << 20) == ENDED
        return read_kept(work.aside).calls


def cut_once(folder: Path, dies_at: int, dice: random.Random, *, fsyncs: bool = True) -> None:
    with working(folder) as work:
        assert run(work, work.disk, work.aside, dies_at, fsyncs=fsyncs) == DIED
        cut(work.disk, work.aside, dice)
        check(work)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace fsync, because the power is not really cut: the recorder only has to know of each fsync."""
    monkeypatch.setattr(os, "fsync", lambda _fd: None)
    monkeypatch.setattr(os, "fdatasync", lambda _fd: None)


@pytest.mark.chaos
@pytest.mark.timeout(120 + 2 * CUTS)
@pytest.mark.parametrize("one_by_one", [True, False], ids=["fsync", "syncfs"])
def test_store_whose_host_loses_power_counts_nothing_false_loses_nothing_kept_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], one_by_one: bool
) -> None:
    """After every second cut, only flushed data are left."""
    monkeypatch.setattr(trees, "_FSYNC_UP_TO", 1000 if one_by_one else 0)
    total, dice = calls(tmp_path), random.Random(SEED)
    for number in range(CUTS // 2):
        dies_at, seed = dice.randrange(total), dice.randrange(1 << 30)
        try:
            cut_once(tmp_path / str(number), dies_at, random.Random(seed) if number % 2 else OnlyWhatIsSure())
        except BaseException:
            say(capsys, [f"power cut: at call {dies_at} of {total}, NIMBUS_BLOB_SEED={SEED}"])
            raise


@pytest.mark.chaos
def test_store_in_a_new_folder_is_there_after_a_power_cut(tmp_path: Path) -> None:
    """The store also flushes the parent folders that it creates."""
    cut_once(tmp_path / "last", calls(tmp_path) - 1, OnlyWhatIsSure())


@pytest.mark.chaos
def test_disk_that_lies_about_fsync_is_found_out_by_these_checks(tmp_path: Path) -> None:
    """Otherwise the checks would prove nothing."""
    with pytest.raises(AssertionError, match="a kept release"):
        cut_once(tmp_path / "last", calls(tmp_path) - 1, OnlyWhatIsSure(), fsyncs=False)
