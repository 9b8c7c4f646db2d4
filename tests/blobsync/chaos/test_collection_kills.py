"""Collections of a bucket, killed at random moments while publishers publish there.

NIMBUS_BLOB_KILLS: number of killed collectors. NIMBUS_BLOB_SEED: the seed that a run printed, to repeat its
roles and pauses.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from blobsync import ReleaseRef, S3Config, S3ObjectStore, list_releases
from blobsync.bucket import keys
from blobsync.bucket.releases import fetch_layout, fetch_manifest
from nimbus.localstack.s3 import S3Server
from tests.blobsync.chaos.collection_worker import (
    HOUR,
    NAMES,
    VERSIONS,
    Folder,
    LeapingStore,
    files_of,
    gather,
    publish_version,
    write_versions,
)
from tests.blobsync.chaos.forks import Forks
from tests.blobsync.release_reader import read_release
from tests.report import number_from, say

KILLS = number_from("NIMBUS_BLOB_KILLS", 6)
SEED = number_from("NIMBUS_BLOB_SEED", secrets.randbelow(1_000_000))
LONGEST_S = 0.5
IN_TIME = "killed after a request to delete had begun"
"""If no kill hits a deletion, the test continues, up to four times as long."""
ROLES = (
    ("collect",),
    ("collect", "collect"),
    ("collect", "publish"),
    ("collect", "publish", "publish"),
    ("collect", "collect", "publish"),
)


class Site:
    """A bucket, and its expected content."""

    def __init__(self, config: S3Config, folder: Path, dice: random.Random) -> None:
        self.folder, self._dice = Folder(folder), dice
        self._s3 = S3ObjectStore(config)
        write_versions(folder / "src")
        self.truth: dict[str, dict[str, bytes]] = {}
        self.folder.leap(HOUR)
        for name in NAMES:
            for version in range(VERSIONS):
                ref = publish_version(self.store, folder / "src", name, version, dry_run=version > 1)
                self.truth[ref.digest] = files_of(version)
        self.folder.wanted = frozenset(dice.sample(self.visible(), 2))

    def close(self) -> None:
        self._s3.close()

    @property
    def store(self) -> LeapingStore:
        return self.folder.store(self._s3)

    def visible(self) -> list[ReleaseRef]:
        return sorted(
            (ReleaseRef(name, digest) for name in NAMES for digest in list_releases(self.store, name)),
            key=lambda ref: (ref.name, ref.digest),
        )

    def count(self) -> int:
        return sum(not info.key.startswith(("gc/", "leases/")) for info in self.store.list(""))

    def prepare(self) -> None:
        """Prepare a round, while no worker runs: other wanted releases, a new one, and objects to delete."""
        self.folder.leap(2 * HOUR)  # the leases of killed workers expire
        for name in self._dice.sample(NAMES, 2):
            publish_version(self.store, self.folder.path / "src", name, self._dice.randrange(VERSIONS))
        visible = self.visible()
        self.folder.wanted = frozenset(self._dice.sample(visible, min(len(visible), 2)))
        self.folder.leap(2 * HOUR)
        if self._dice.random() < 0.7:
            gather(self.store, self.folder)  # condemns objects
            self.folder.leap(2 * HOUR)
        self.folder.begin()

    def check(self) -> None:
        """Check that visible releases are complete, and that wanted or just published ones are visible."""
        there = {info.key: info.size_bytes for info in self.store.list("")}
        visible = set(self.visible())
        assert self.folder.wanted <= visible
        assert self.folder.published() <= visible
        for ref in visible:
            for key, size_bytes in self.needed(ref).items():
                assert there.get(key) == size_bytes, f"{ref} lacks {key}"
        for ref in self.folder.wanted:
            self.check_bytes(ref)

    def check_bytes(self, ref: ReleaseRef) -> None:
        assert dict(read_release(self.store, ref.name, ref.digest)) == self.truth[ref.digest]

    def needed(self, ref: ReleaseRef) -> dict[str, int]:
        """The packs and blobs that a release needs."""
        manifest = fetch_manifest(self.store, ref.name, ref.digest)
        layout = fetch_layout(self.store, ref.name, ref.digest)
        sizes = {keys.pack(pack.name): pack.size_bytes for pack in layout.packs}
        blobs = manifest.blobs.values()
        return sizes | {keys.blob(blob.name): blob.size_bytes for blob in blobs if not blob.is_packed}

    def check_quiet(self) -> None:
        """Check, without workers, that two collections a grace period apart leave only wanted releases."""
        self.folder.begin()
        for _ in range(2):
            self.folder.leap(2 * HOUR)
            report = gather(self.store, self.folder)
            assert not report.clock_trouble
            assert not report.postponed
            assert report.missing_count == 0
        self.check()
        expected = set[str]()
        for ref in self.folder.wanted:
            self.check_bytes(ref)
            expected |= self.needed(ref).keys()
            expected |= {keys.manifest(ref.name, ref.digest), keys.layout(ref.name, ref.digest)}
        left = {info.key for info in self.store.list("") if not info.key.startswith("gc/")}
        histories = {key for key in left if key.startswith(keys.PUBLICATIONS)}
        assert left - histories == expected
        assert {key[-64:] for key in histories} == {ref.digest for ref in self.folder.wanted}


@pytest.mark.chaos
@pytest.mark.timeout(120 + 16 * KILLS)
def test_bucket_whose_collectors_are_killed_at_random_moments_is_whole_and_is_cleaned_by_the_next(
    s3_server: S3Server, s3_config: S3Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(capsys, [f"collection: {KILLS} kills, NIMBUS_BLOB_SEED={SEED}"])
    dice, count = random.Random(SEED), Counter[str]()
    arguments = ("tests.blobsync.chaos.collection_worker", s3_server.endpoint_url, s3_config.bucket, tmp_path)
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Forks(*arguments, folder=tmp_path, server=s3_server))
            for _ in range(max(map(len, ROLES)))
        ]
        site = Site(s3_config, tmp_path, dice)
        stack.callback(site.close)
        while count["collect"] < KILLS or (not count[IN_TIME] and count["collect"] < 4 * KILLS):
            site.prepare()
            roles = dice.choice(ROLES) if count["rounds"] else ROLES[0]
            before = site.count()
            _kill_all(workers, roles, site, dice)
            site.check()
            count.update(roles)
            count["rounds"] += 1
            count["published"] += len(site.folder.published())
            count[IN_TIME] += site.folder.deleting() > 0
            count["objects gone meanwhile"] += max(0, before - site.count())
            if count["rounds"] % 20 == 0:
                site.check_quiet()
        site.check_quiet()
    assert count[IN_TIME] > 0  # otherwise the test proves little
    say(capsys, [f"collection: {dict(sorted(count.items()))}; nothing broken, nothing left"])


def _kill_all(workers: list[Forks], roles: tuple[str, ...], site: Site, dice: random.Random) -> None:
    """Kill collectors, if possible while they delete."""
    at_work = [
        (worker, worker.start(role, dice.randrange(1 << 30)))
        for role, worker in zip(roles, workers, strict=False)
    ]
    if "publish" not in roles or dice.random() < 0.5:
        requests = dice.randint(1, 6)
        until_s = time.monotonic() + (1 if "publish" in roles else 3)
        while site.folder.deleting() < requests and time.monotonic() < until_s:
            time.sleep(0.001)
        time.sleep(dice.random() * 0.01)  # so that the moment of the kill is random
    else:
        time.sleep(dice.random() * LONGEST_S)
    for worker, pid in at_work:
        worker.kill(pid)
        time.sleep(dice.random() * 0.1)
