"""Two processes that use one local store are killed at random moments, repeatedly.

NIMBUS_BLOB_KILLS: number of kills; 1000 makes a long test.
"""

from __future__ import annotations

import random
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync.local.gc import gc
from blobsync.local.releases import RELEASE_FILES
from blobsync.local.store import LocalStore
from tests.blobsync.chaos.forks import Forks
from tests.blobsync.chaos.local_store_worker import releases
from tests.blobsync.local_store_samples import Sample, contents, fill
from tests.report import number_from

LONGEST_S = 0.25


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_store_whose_users_are_killed_at_random_moments_counts_nothing_false_and_loses_nothing(
    tmp_path: Path,
) -> None:
    kills = number_from("NIMBUS_BLOB_KILLS", 30)
    seed = number_from("NIMBUS_BLOB_SEED", random.randrange(1 << 30))
    sys.stdout.write(f"NIMBUS_BLOB_SEED={seed}\n")  # shown when it fails
    chance, known, root = random.Random(seed), releases(), tmp_path / "store"
    module = "tests.blobsync.chaos.local_store_worker"
    with Forks(module, folder=tmp_path) as one, Forks(module, folder=tmp_path) as other:
        both = (one, other)
        for number in range(0, kills, 2):
            pids = [forks.start(root, seed + number + at) for at, forks in enumerate(both)]
            for forks, pid in zip(both, pids, strict=True):
                time.sleep(chance.random() * LONGEST_S)  # so that the moment of the kill is random
                forks.kill(pid)
            check(root, known)
    finish(root, known)


def check(root: Path, known: list[Sample]) -> None:
    """Check that files that count as verified have the right bytes."""
    with LocalStore(root) as local:
        for release in known:
            for item, data in release.objects.items():
                if local.has(item):
                    assert local._objects.path(item).read_bytes() == data
            lacking = local.missing(release.known)
            if local.kept(release.manifest.ref) is not None and not lacking:
                assert contents(local.materialise(release.manifest.ref)) == dict(release.files)
        assert list((root / "quarantine").iterdir()) == []
        assert len(list((root / "sessions").iterdir())) == 1


def finish(root: Path, known: list[Sample]) -> None:
    """Check that all releases can be fetched and all but one removed, and that nothing else is left."""
    with LocalStore(root) as local:
        for release in known:
            assert contents(local.materialise(fill(local, release).manifest.ref)) == dict(release.files)
        last = known[0]
        for _ in range(2):
            gc(local, {last.manifest.digest}, grace=timedelta(0), max_share=1.0)
        assert not local.verify(last.manifest.ref)
        digest = last.manifest.digest
        wanted = {local._objects.path(item) for item in last.objects}
        wanted |= {root / "releases" / "p" / f"{digest}{suffix}" for suffix in RELEASE_FILES}
        wanted |= {root / "trees" / f"{digest}.files", root / "LOCK", root / "verified", root / "gc.json"}
        tree, session = root / "trees" / digest, local.context.session.new_path().parent
        left = {path for path in root.rglob("*") if path.is_file()}
        assert {path for path in left if not path.is_relative_to(tree)} == {*wanted, session / "lock"}
