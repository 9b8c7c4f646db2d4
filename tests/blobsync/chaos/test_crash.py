"""Processes that publish, sync, scrub and collect, on one bucket and store, are killed at random moments.

NIMBUS_BLOB_KILLS: number of kills. NIMBUS_BLOB_SEED: the seed that a run printed, to repeat its roles and
pauses.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import (
    LocalStore,
    ReleaseRef,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    Syncer,
    collect,
    gc,
    publish,
)
from blobsync.local.releases import RELEASE_FILES, Release
from nimbus.localstack.s3 import S3Server
from tests.blobsync.chaos.crash_worker import NAME, ROLES, releases
from tests.blobsync.chaos.forks import Forks
from tests.blobsync.chaos.truth import VERSIONS, audit, files_of, write_versions
from tests.blobsync.local_store_samples import contents
from tests.report import number_from, say

KILLS = number_from("NIMBUS_BLOB_KILLS", 24)
SEED = number_from("NIMBUS_BLOB_SEED", secrets.randbelow(1_000_000))
AT_ONCE = 3
LONGEST_S = 0.4
RETRY = RetryPolicy(first_wait=timedelta(milliseconds=20), max_wait=timedelta(milliseconds=200))


class Site:
    """A bucket, a local store, and their expected content."""

    def __init__(self, config: S3Config, folder: Path) -> None:
        self.folder, self.root = folder, folder / "store"
        self.store = S3ObjectStore(config)
        write_versions(folder / "src")
        (folder / "scratch").mkdir()
        digests = [self.publish(version, dry_run=True) for version in range(VERSIONS)]
        self.truth = {digest: files_of(version) for version, digest in enumerate(digests)}
        self.stays = ReleaseRef(NAME, self.publish(1))
        self.publish(2)

    def publish(self, version: int, *, dry_run: bool = False) -> str:
        files = collect(self.folder / "src" / str(version), include=["**"])
        return publish(self.store, name=NAME, files=files, dry_run=dry_run).digest

    def sync(self, *wanted: ReleaseRef) -> None:
        """Sync releases completely, and compare them with the published files, byte by byte."""
        with LocalStore(self.root) as local, syncing(self.store, local) as syncer:
            for ref in wanted:
                assert contents(syncer.ensure(ref, timedelta(seconds=60))) == self.truth[ref.digest]
            assert list((self.root / "quarantine").iterdir()) == [], "nothing was damaged"

    def check(self) -> None:
        """Check after a kill, without other users: no wrong file counts as verified, and none is lost."""
        assert audit(self.root, self.truth) == []
        with LocalStore(self.root) as local:
            kept = local.kept(self.stays)
            assert kept is not None
            assert not local.missing(Release(kept.manifest, kept.layout))
            assert contents(local.materialise(kept.manifest.ref)) == self.truth[self.stays.digest]
            assert len(list((self.root / "sessions").iterdir())) == 1, "files of killed processes are removed"
        assert audit(self.root, self.truth) == []

    def check_collected(self) -> None:
        """Check that after collection only one release is left."""
        self.sync(self.stays)
        with LocalStore(self.root) as local:
            for _ in range(2):
                gc(local, {self.stays.digest}, grace=timedelta(0), max_share=1.0)
            kept = local.kept(self.stays)
            assert kept is not None
            digest, session = self.stays.digest, local.context.session.new_path().parent
            blobs = (blob for blob in kept.manifest.blobs.values() if not blob.is_packed)
            expected = {local._objects.path(item) for item in (*kept.layout.packs, *blobs)}
            expected |= {self.root / "releases" / NAME / f"{digest}{end}" for end in RELEASE_FILES}
            expected |= {self.root / name for name in ("LOCK", "verified", "gc.json", "scrub")}
            expected |= {self.root / "trees" / f"{digest}.files", session / "lock"}
            tree = self.root / "trees" / digest
            left = {path for path in self.root.rglob("*") if not path.is_dir()}
            assert {path for path in left if not path.is_relative_to(tree)} == expected
            assert {path.name for path in (self.root / "trees").iterdir()} == {digest, f"{digest}.files"}
            assert contents(tree) == self.truth[digest]


@contextmanager
def syncing(store: S3ObjectStore, local: LocalStore) -> Iterator[Syncer]:
    syncer = Syncer(store, local, retry=RETRY)
    syncer.start()
    try:
        yield syncer
    finally:
        syncer.close(timedelta(seconds=30))


@pytest.mark.chaos
@pytest.mark.timeout(120 + 4 * KILLS)
def test_bucket_and_store_whose_users_are_killed_at_random_moments_lose_nothing_and_leak_nothing(
    s3_server: S3Server, s3_config: S3Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(capsys, [f"crash: {KILLS} kills, NIMBUS_BLOB_SEED={SEED}"])
    dice, killed = random.Random(SEED), Counter[str]()
    with ExitStack() as stack:
        site = Site(s3_config, tmp_path)
        stack.callback(site.store.close)
        site.sync(site.stays)
        arguments = ("tests.blobsync.chaos.crash_worker", s3_server.endpoint_url, s3_config.bucket, tmp_path)
        forks = [
            stack.enter_context(Forks(*arguments, folder=tmp_path, server=s3_server)) for _ in range(AT_ONCE)
        ]
        for number in range(0, KILLS, AT_ONCE):
            roles = dice.choices(sorted(ROLES), k=AT_ONCE)
            _kill_all(forks, roles, site.stays.digest, dice)
            killed.update(roles)
            site.check()
            site.sync(dice.choice(releases(site.store)))
            if number % (7 * AT_ONCE) == 0:
                site.check_collected()
        site.sync(*releases(site.store))
        for version in range(VERSIONS):  # unfinished publishes must not disturb
            site.publish(version)
        assert {ref.digest for ref in releases(site.store)} == set(site.truth)
        site.sync(*releases(site.store))
        site.check_collected()
    say(
        capsys,
        [f"crash: {killed.total()} killed, {dict(sorted(killed.items()))}; nothing false, lost or left"],
    )


def _kill_all(forks: list[Forks], roles: list[str], stays: str, dice: random.Random) -> None:
    pids = [each.start(role, dice.randrange(1 << 30), stays) for each, role in zip(forks, roles, strict=True)]
    for each, pid in zip(forks, pids, strict=True):
        time.sleep(dice.random() * LONGEST_S)  # so that the moment of the kill is random
        each.kill(pid)
