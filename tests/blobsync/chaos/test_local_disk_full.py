"""A disk that is full at any point: a clear error, no damage, and with free space the store continues.

Uses small file systems, if the tests may mount, and in any case a limit on the sizes of files.
NIMBUS_BLOB_DISKS: number of points. NIMBUS_BLOB_SEED: the seed that a run printed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blobsync.errors import LocalStoreError
from blobsync.local.disk import free_bytes
from blobsync.local.disk_state import DiskCondition
from blobsync.local.store import LocalStore
from tests.blobsync.local_store_samples import Sample, contents, fill, sample
from tests.report import number_from
from tests.thorough import sampled

ROOT = Path(__file__).parents[3]
DISK_MIB = 160
ROUNDS = number_from("NIMBUS_BLOB_DISKS", 8)


def first() -> Sample:
    return sample({f"d/f{number}": b"%d" % number * 1500 for number in range(100)})


def second() -> Sample:
    noise = random.Random(1)
    small = {f"e/g{number}": noise.randbytes(40_000) for number in range(150)}
    chunked = b"".join(bytes([number]) * (1 << 20) for number in range(20))
    return sample(
        {**small, "large": noise.randbytes(5 << 20), "tool": chunked}, executable={"tool"}, members=30
    )


def _mounted(folder: Path, *command: str) -> Iterator[Path]:
    folder.mkdir()
    if subprocess.run([*command, str(folder)], check=False, capture_output=True).returncode != 0:
        pytest.skip("this user may not mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A small file system. The second kind reports late, at fsync, that it is full."""
    if request.param == "tmpfs":
        yield from _mounted(
            tmp_path / "disk", "mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m,nr_inodes=2000", "none"
        )
        return
    image = tmp_path / "image"
    image.touch()
    os.truncate(image, DISK_MIB << 20)
    program = shutil.which("mkfs.ext4", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")  # not on every PATH
    if program is None:
        pytest.skip("there is no mkfs.ext4")
    subprocess.run([program, "-q", "-F", str(image)], check=True, capture_output=True)
    yield from _mounted(tmp_path / "disk", "mount", "-o", "loop", str(image))


@pytest.mark.chaos
def test_disk_full_at_random_points_is_told_clearly_and_harms_nothing(small_disk: Path) -> None:
    seed = number_from("NIMBUS_BLOB_SEED", random.randrange(1 << 30))
    sys.stdout.write(f"NIMBUS_BLOB_SEED={seed}\n")  # shown when it fails
    chance, old, new, refused = random.Random(seed), first(), second(), 0
    ballast = small_disk / "ballast"
    for number in range(ROUNDS):
        with LocalStore(small_disk / str(number)) as local:
            tree = local.materialise(fill(local, old).manifest.ref)
            before = contents(tree)
            needed = int(2.2 * new.manifest.size_bytes)
            with ballast.open("wb") as file:
                room = int(needed * (number + chance.random()) / ROUNDS)
                os.posix_fallocate(file.fileno(), 0, max(1, free_bytes(small_disk) - room))
            try:
                local.materialise(fill(local, new).manifest.ref)
            except LocalStoreError as exc:
                refused += 1
                assert "No space left" in str(exc)
                assert local.disk_state().condition is DiskCondition.FULL
            assert contents(local.materialise(old.manifest.ref)) == before == dict(old.files)

            ballast.unlink()
            assert contents(local.materialise(fill(local, new).manifest.ref)) == dict(new.files)
            assert local.disk_state().ok
            assert not local.verify(new.manifest.ref)
            assert not local.verify(old.manifest.ref)
            assert list((local.root / "quarantine").iterdir()) == []
            assert list((local.root / "partial").iterdir()) == []
        subprocess.run(["rm", "-rf", str(small_disk / str(number))], check=True)
    assert refused > ROUNDS / 4


LIMITED = """
import resource, sys
from pathlib import Path
from blobsync.errors import LocalStoreError
from blobsync.local.store import LocalStore
from tests.blobsync.chaos.test_local_disk_full import first, second
from tests.report import number_from
from tests.blobsync.local_store_samples import fill
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
with LocalStore(Path(sys.argv[1])) as local:
    try:
        local.materialise(fill(local, second()).manifest.ref)
    except LocalStoreError as exc:
        print(local.disk_state().condition, exc)
    else:
        print("done")
"""


@pytest.mark.chaos
@pytest.mark.parametrize("limit", sampled([1, 30_000, 5_300_000, 30 << 20, 700, 1_000_000, 19 << 20], 4))
def test_limit_on_the_size_of_files_is_told_clearly_and_harms_nothing(tmp_path: Path, limit: int) -> None:
    old, new = first(), second()
    with LocalStore(tmp_path) as local:
        fill(local, old)
    ended = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), str(limit)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    assert ended.stdout.startswith("done" if limit == 30 << 20 else "full ")

    with LocalStore(tmp_path) as local:
        for release in (old, new):
            assert contents(local.materialise(fill(local, release).manifest.ref)) == dict(release.files)
            assert not local.verify(release.manifest.ref)
        assert list((tmp_path / "quarantine").iterdir()) == []
