"""Publishes, syncs, scrubs and collects in an endless loop until it is killed.

Not a test: `test_crash` starts it with `Forks`.

    python -m tests.blobsync.chaos.crash_worker <endpoint> <bucket> <folder>
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from blobsync import (
    BucketUnavailableError,
    GcRefusedError,
    LocalStore,
    ReleaseRef,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    Syncer,
    collect,
    gc,
    list_releases,
    publish,
)
from blobsync.collection.collector import collect_garbage
from tests.blobsync.chaos.forks import fork_workers
from tests.blobsync.chaos.truth import VERSIONS

NAME = "p"
RETRY = RetryPolicy(first_wait=timedelta(milliseconds=20), max_wait=timedelta(milliseconds=200))
OFTEN = timedelta(milliseconds=100)


@dataclass(frozen=True)
class Work:
    """The state of one worker."""

    endpoint: str
    bucket: str
    folder: Path
    stays: ReleaseRef
    dice: random.Random

    def connected(self) -> S3ObjectStore:
        """Keys come from the environment."""
        return S3ObjectStore(S3Config(endpoint_url=self.endpoint, bucket=self.bucket))

    def local(self) -> LocalStore:
        """The one store of this host."""
        return LocalStore(self.folder / "store")


def releases(store: S3ObjectStore) -> list[ReleaseRef]:
    """The releases that are visible in the bucket now."""
    return [ReleaseRef(NAME, digest) for digest in list_releases(store, NAME)]


def publishing(work: Work) -> None:
    """Publish random versions, sometimes with all files sent again."""
    store = work.connected()
    while True:
        source = work.folder / "src" / str(work.dice.randrange(VERSIONS))
        publish(
            store,
            name=NAME,
            files=collect(source, include=["**"]),
            repair=work.dice.random() < 0.3,
            scratch=work.folder / "scratch",
        )


def syncing(work: Work) -> None:
    """Sync some releases like a scheduler, while the scrub runs continuously."""
    store = work.connected()
    with work.local() as local:
        syncer = Syncer(
            store, local, retry=RETRY, scrub_interval=OFTEN, scrub_bytes_per_s=None, look_interval=OFTEN
        )
        syncer.start()
        while True:
            there = releases(store)
            wanted = work.dice.sample(there, min(len(there), 3))
            syncer.want([*wanted, work.stays])
            for ref in wanted:
                with syncer.pinned(ref, timedelta(seconds=30)):
                    pass


def scrubbing(work: Work) -> None:
    """Verify every byte of every local release."""
    with work.local() as local:
        while True:
            for ref in local.releases():
                local.hold({ref.digest})
                kept = local.kept(ref)
                if kept is not None:
                    local.verify(kept.manifest.ref)


def collecting(work: Work) -> None:
    """Collect all but a few local releases, and objects in the bucket that were condemned long ago."""
    store = work.connected()
    with work.local() as local:
        while True:
            there = local.releases()
            keep = {ref.digest for ref in work.dice.sample(there, min(len(there), 1))} | {work.stays.digest}
            gc(local, keep, grace=timedelta(0), max_share=1.0)
            if work.dice.random() < 0.2:
                collect_garbage(store, frozenset(releases(store)), retry=RETRY)


ROLES: dict[str, Callable[[Work], None]] = {
    "publish": publishing,
    "sync": syncing,
    "scrub": scrubbing,
    "gc": collecting,
}


def work_on(role: str, work: Work) -> None:
    """Work until killed."""
    while True:
        try:
            ROLES[role](work)
        except (GcRefusedError, BucketUnavailableError):  # another worker was faster, or the machine is slow
            continue


def work(words: list[str]) -> None:
    """Work as the words say: role, seed, digest of the release that stays."""
    endpoint, bucket, folder = sys.argv[1:]
    role, seed, digest = words
    dice = random.Random(int(seed))
    work_on(role, Work(endpoint, bucket, Path(folder), ReleaseRef(NAME, digest), dice))


if __name__ == "__main__":
    fork_workers(work)
