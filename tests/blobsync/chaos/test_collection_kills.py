"""Collections of a bucket, killed at random moments while publishers publish there.

NIMBUS_BLOB_KILLS: number of killed collectors. NIMBUS_BLOB_SEED: the seed that a run printed, to repeat its
roles and pauses.
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from blobsync import ReleaseRef, S3Config, S3ObjectStore, Secret, list_releases
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
from tests.blobsync.release_reader import read_release
from tests.report import number_from, say

ROOT = Path(__file__).parents[3]
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


class Forks:
    """A process that forks workers, one at a time."""

    def __init__(self, server: S3Server, bucket: str, folder: Path) -> None:
        module = "tests.blobsync.chaos.collection_worker"
        access = {"AWS_ACCESS_KEY_ID": server.access_key, "AWS_SECRET_ACCESS_KEY": server.secret_key}
        self._errors = (folder / f"errors-{secrets.token_hex(4)}").open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, server.endpoint_url, bucket, str(folder)],
            cwd=ROOT,
            env={**os.environ, **access},
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=1,
        )

    def start(self, role: str, seed: int) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{role} {seed}\n")
        return int(self._said())

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        assert int(self._said()) == -signal.SIGKILL, f"a worker ended by itself: {self._told()}"

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        self._errors.close()

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def _told(self) -> str:
        self._errors.seek(0)
        return "\n".join(self._errors.read().splitlines()[-40:])


class Site:
    """A bucket, and its expected content."""

    def __init__(self, server: S3Server, bucket: str, folder: Path, dice: random.Random) -> None:
        self.folder, self._dice = Folder(folder), dice
        self._s3 = S3ObjectStore(
            S3Config(
                endpoint_url=server.endpoint_url,
                bucket=bucket,
                access_key_id=server.access_key,
                secret_access_key=Secret(server.secret_key),
            )
        )
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


@contextmanager
def forks(server: S3Server, bucket: str, folder: Path) -> Iterator[list[Forks]]:
    with ExitStack() as stack:
        made = [Forks(server, bucket, folder) for _ in range(max(map(len, ROLES)))]
        for one in made:
            stack.callback(one.close)
        yield made


@pytest.mark.chaos
@pytest.mark.timeout(120 + 16 * KILLS)
def test_bucket_whose_collectors_are_killed_at_random_moments_is_whole_and_is_cleaned_by_the_next(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say(capsys, [f"collection: {KILLS} kills, NIMBUS_BLOB_SEED={SEED}"])
    dice, count = random.Random(SEED), Counter[str]()
    with forks(s3_server, s3_bucket, tmp_path) as workers, ExitStack() as stack:
        site = Site(s3_server, s3_bucket, tmp_path, dice)
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
