"""Publishes to a bucket, or collects in it, in an endless loop until it is killed.

Not a test: `test_collection_kills` starts it with `Forks`.

    python -m tests.blobsync.chaos.collection_worker <endpoint> <bucket> <folder>
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from blobsync import (
    GcRefusedError,
    ObjectInfo,
    ObjectStore,
    ReleaseRef,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    collect,
    publish,
)
from blobsync.collection import deletion
from blobsync.collection.collector import CollectionReport, collect_garbage
from blobsync.collection.decision import CollectionPolicy
from tests.blobsync.chaos.forks import fork_workers
from tests.blobsync.travelled_store import TravelledStore

NAMES = ("p", "q", "r")
VERSIONS = 6
HOUR = timedelta(hours=1)
POLICY = CollectionPolicy(
    grace=HOUR, min_age=HOUR, keep_age=HOUR, keep_newest=0, max_share=1.0, patience=timedelta(0)
)
RETRY = RetryPolicy(first_wait=timedelta(milliseconds=20), max_wait=timedelta(milliseconds=200))
_LEAPS, _WANTED, _PUBLISHED, _DELETING = "leaps", "wanted", "published", "deleting"


class LeapingStore(TravelledStore):
    """A store whose clock has jumped at some moments, which are the same for all processes.

    Args:
        store: A store with an ordinary clock.
        leaps: Time and size of each jump.
    """

    def __init__(self, store: ObjectStore, leaps: Sequence[tuple[datetime, timedelta]]) -> None:
        super().__init__(store)
        self._leaps = leaps
        self.passed = sum((far for _, far in leaps), timedelta(0))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for info in self._store.list(prefix, start_after):
            shift = sum((far for when, far in self._leaps if when <= info.modified), timedelta(0))
            yield ObjectInfo(info.key, info.size_bytes, info.modified + shift)


class Folder:
    """Shared files of test and workers. The test writes only while no worker lives."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._leaps: list[tuple[datetime, timedelta]] = []

    def leap(self, far: timedelta) -> None:
        """Advance the clock. The store's times are in milliseconds, so no write may share the jump's."""
        time.sleep(0.005)
        self._leaps.append((datetime.now(UTC), far))
        time.sleep(0.005)
        told = [(when.isoformat(), far.total_seconds()) for when, far in self._leaps]
        (self.path / _LEAPS).write_text(json.dumps(told))

    def store(self, s3: S3ObjectStore) -> LeapingStore:
        """The store with the current clock."""
        told = json.loads((self.path / _LEAPS).read_text())
        leaps = [(datetime.fromisoformat(when), timedelta(seconds=far)) for when, far in told]
        return LeapingStore(s3, leaps)

    @property
    def wanted(self) -> frozenset[ReleaseRef]:
        """Releases that no collection may delete."""
        return frozenset(ReleaseRef(*pair) for pair in json.loads((self.path / _WANTED).read_text()))

    @wanted.setter
    def wanted(self, refs: frozenset[ReleaseRef]) -> None:
        (self.path / _WANTED).write_text(json.dumps([(ref.name, ref.digest) for ref in refs]))

    def begin(self) -> None:
        """A round begins."""
        for name in (_PUBLISHED, _DELETING):
            (self.path / name).write_text("")

    def note_published(self, ref: ReleaseRef) -> None:
        """Append one line in one write."""
        with (self.path / _PUBLISHED).open("a") as file:
            file.write(f"{ref.name} {ref.digest}\n")

    def published(self) -> set[ReleaseRef]:
        """Releases published and recorded in this round."""
        lines = (self.path / _PUBLISHED).read_text().splitlines()
        return {ReleaseRef(*line.split()) for line in lines}

    def note_deleting(self) -> bool:
        """Called before each request that deletes."""
        with (self.path / _DELETING).open("a") as file:
            file.write(".")
        return True

    def deleting(self) -> int:
        """How many requests that delete were begun in this round."""
        return (self.path / _DELETING).stat().st_size


def files_of(version: int) -> dict[str, bytes]:
    """The files of one version: some are shared with other versions, some are not packed."""
    dice = random.Random(version)
    files = {f"lib/m{number}.py": b"common %d\n" % number * 50 for number in range(6)}
    files |= {f"data/v{number}": dice.randbytes(dice.randint(0, 9_000)) for number in range(4)}
    if version % 3 == 1:
        files["alone"] = dice.randbytes(5 << 20)
    return files


def write_versions(folder: Path) -> None:
    """Write all versions as folders to publish from."""
    for version in range(VERSIONS):
        for path, data in files_of(version).items():
            file = folder / str(version) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)


def publish_version(
    store: ObjectStore, folder: Path, name: str, version: int, *, dry_run: bool = False
) -> ReleaseRef:
    """Publish one version."""
    files = collect(folder / str(version), include=["**"])
    return ReleaseRef(name, publish(store, name=name, files=files, retry=RETRY, dry_run=dry_run).digest)


def gather(store: LeapingStore, folder: Folder) -> CollectionReport:
    """Collect everything that is not wanted."""
    return collect_garbage(
        store,
        folder.wanted,
        policy=POLICY,
        allow_empty=True,
        retry=RETRY,
        clock=store.now,
        may_delete=folder.note_deleting,
    )


def publishing(store: LeapingStore, folder: Folder, dice: random.Random) -> None:
    """Publish random versions, with pauses for collections."""
    while True:
        time.sleep(dice.random() * 0.3)
        version = dice.randrange(VERSIONS)
        folder.note_published(publish_version(store, folder.path / "src", dice.choice(NAMES), version))


def collecting(store: LeapingStore, folder: Folder, dice: random.Random) -> None:
    """Collect repeatedly, few objects at a time, so that there are many points to be killed at."""
    deletion.BATCH = dice.choice([1, 2, 5])
    while True:
        try:
            gather(store, folder)
        except GcRefusedError:  # another collection was faster
            continue


ROLES: dict[str, Callable[[LeapingStore, Folder, random.Random], None]] = {
    "publish": publishing,
    "collect": collecting,
}


def work(words: list[str]) -> None:
    """Work as the words say: role, seed."""
    endpoint, bucket, path = sys.argv[1:]
    role, seed = words
    folder = Folder(Path(path))
    s3 = S3ObjectStore(S3Config(endpoint_url=endpoint, bucket=bucket))
    ROLES[role](folder.store(s3), folder, random.Random(int(seed)))


if __name__ == "__main__":
    fork_workers(work)
