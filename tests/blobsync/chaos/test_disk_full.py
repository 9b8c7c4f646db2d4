"""Syncing to a disk that is full at random points: a clear error, no damage, and later success.

Uses a small file system in memory, if the tests may mount. NIMBUS_BLOB_SEED: the seed that a run printed.
NIMBUS_BLOB_DISKS: number of points. A store alone: `test_local_disk_full`.
"""

from __future__ import annotations

import os
import random
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import (
    DiskCondition,
    LocalStore,
    LocalStoreError,
    ReleaseRef,
    RetryPolicy,
    S3ObjectStore,
    Syncer,
    collect,
    publish,
)
from blobsync.local.disk import free_bytes
from tests.blobsync.chaos.truth import VERSIONS, audit, files_of, write_versions
from tests.blobsync.local_store_samples import contents
from tests.report import number_from, say

SEED = number_from("NIMBUS_BLOB_SEED", secrets.randbelow(1_000_000))
POINTS = number_from("NIMBUS_BLOB_DISKS", 6)
RETRY = RetryPolicy(first_wait=timedelta(milliseconds=20), max_wait=timedelta(milliseconds=100))
SOON = timedelta(seconds=60)
NAME, DISK_MIB = "p", 120
LARGE = VERSIONS - 1
Eventually = Callable[..., None]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "none", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path, room_bytes: int) -> Path:
    """Fill the disk, except for that many bytes."""
    ballast = disk / "ballast"
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free_bytes(disk) - room_bytes))
    return ballast


def published(store: S3ObjectStore, folder: Path, version: int, scratch: Path | None = None) -> ReleaseRef:
    files = collect(folder / str(version), include=["**"])
    return ReleaseRef(NAME, publish(store, name=NAME, files=files, scratch=scratch).digest)


@pytest.mark.chaos
@pytest.mark.timeout(60 + 10 * POINTS)
def test_sync_onto_a_disk_full_at_random_points_damages_nothing_and_goes_on_when_there_is_room(
    small_disk: Path,
    store: S3ObjectStore,
    tmp_path: Path,
    eventually: Eventually,
    capsys: pytest.CaptureFixture[str],
) -> None:
    say(capsys, [f"disk full: {POINTS} points, NIMBUS_BLOB_SEED={SEED}"])
    write_versions(tmp_path / "src")
    first, large = (published(store, tmp_path / "src", version) for version in (0, LARGE))
    truth = {first.digest: files_of(0), large.digest: files_of(LARGE)}
    needed = 1.1 * sum(map(len, truth[large.digest].values()))
    dice, full = random.Random(SEED), 0
    for number in range(POINTS):
        root = small_disk / str(number)
        with ExitStack() as stack:
            local = stack.enter_context(LocalStore(root))
            syncer = Syncer(store, local, retry=RETRY)
            stack.callback(syncer.close, SOON)
            syncer.start()
            assert contents(syncer.ensure(first, SOON)) == truth[first.digest]
            room = dice.choice([dice.randrange(40_000), dice.randrange(int(needed))])
            ballast = fill(small_disk, room)
            syncer.want([first, large])
            full += _is_full(syncer, large, first, eventually)
            assert audit(root, truth) == []
            assert contents(syncer.ensure(first, SOON)) == truth[first.digest]

            ballast.unlink()
            eventually(lambda: syncer.readiness().is_ready(large), 60, "the disk has room again")  # noqa: B023
            eventually(lambda: syncer.readiness().disk.ok, 60, "the end of the trouble is reported")  # noqa: B023
            assert contents(syncer.ensure(large, SOON)) == truth[large.digest]
            assert list((root / "quarantine").iterdir()) == []
        assert audit(root, truth) == []
        assert list((root / "partial").iterdir()) == []
        subprocess.run(["rm", "-rf", str(root)], check=True)
    say(capsys, [f"disk full: {full} of {POINTS} points were too small for it; none did damage"])
    assert full > POINTS / 4


def _is_full(syncer: Syncer, large: ReleaseRef, first: ReleaseRef, eventually: Eventually) -> bool:
    """Whether the disk was too small. Checks the error, and that earlier releases are still ready."""
    eventually(
        lambda: syncer.readiness().is_ready(large) or syncer.readiness().disk.condition is DiskCondition.FULL,
        60,
        "the object is here, or the disk is full",
    )
    seen = syncer.readiness()
    assert seen.is_ready(first)
    if seen.disk.condition is DiskCondition.FULL:
        assert "make room" in seen.disk.reason
    try:
        syncer.ensure(large, timedelta(seconds=1))
    except LocalStoreError as exc:
        assert "No space left" in str(exc)
        assert syncer.readiness().is_ready(first)
        return True
    return False


@pytest.mark.chaos
def test_publish_whose_scratch_is_full_says_so_and_makes_nothing_visible(
    small_disk: Path, store: S3ObjectStore, tmp_path: Path
) -> None:
    write_versions(tmp_path / "src")
    ballast = fill(small_disk, 10_000)

    with pytest.raises(LocalStoreError, match="No space left"):
        published(store, tmp_path / "src", 0, scratch=small_disk)

    assert [info.key for info in store.list("manifests/")] == []
    assert [path.name for path in small_disk.iterdir()] == ["ballast"], "no part of the object stays"
    ballast.unlink()
    ref = published(store, tmp_path / "src", 0, scratch=small_disk)
    with LocalStore(tmp_path / "store") as local:
        syncer = Syncer(store, local, retry=RETRY)
        assert contents(syncer.ensure(ref, SOON)) == files_of(0)
        syncer.close(SOON)
