"""Real publishes and collections at the same time, on threads: no published object is missing."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from blobsync import ObjectInfo, collect, publish
from blobsync.bucket import keys
from blobsync.bucket.ports import OnProgress, ignore_progress
from blobsync.collection import run
from blobsync.collection.collector import CollectionReport, collect_garbage
from blobsync.collection.decision import CollectionPolicy
from blobsync.publishing.publisher import PublishedRelease
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.collection_samples import DAY
from tests.blobsync.release_reader import read_release

ROUNDS = 25
POLICY = CollectionPolicy(keep_age=DAY, keep_newest=0, max_share=1.0, patience=timedelta(0))


class Jittery(MemoryObjectStore):
    """Delays each call by a random time."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__(now=now)
        self._random = random.Random(4)

    def _jitter(self) -> None:
        time.sleep(self._random.choice([0.0, 0.0, 0.001, 0.004]))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._jitter()
        return super().list(prefix, start_after)

    def size(self, key: str) -> int | None:
        self._jitter()
        return super().size(key)

    def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
        self._jitter()
        super().write(key, data, on_progress=on_progress)

    def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
        for key in keys:
            self._jitter()
            super().delete_many([key], before_each)


def test_release_that_is_published_again_while_two_collectors_delete_it_is_whole(tmp_path: Path) -> None:
    passed = timedelta(0)

    def now() -> datetime:
        return datetime.now(UTC) + passed

    store = Jittery(now)
    (tmp_path / "small").write_text("small")
    (tmp_path / "large").write_bytes(bytes(5 << 20))
    files = collect(tmp_path, include=["*"])

    def publish_it() -> PublishedRelease:
        return publish(store, name="p", files=files, published_by="me")

    def gather() -> CollectionReport:
        return collect_garbage(store, frozenset(), policy=POLICY, allow_empty=True, clock=now)

    publish_it()
    postponed = deleted = 0
    for number in range(ROUNDS):
        passed += 2 * DAY
        gather()
        passed += DAY  # every condemned object is due
        start = threading.Barrier(3)

        def at_once(call: Callable[[], object], wait_s: float, start: threading.Barrier = start) -> object:
            start.wait()
            time.sleep(wait_s)
            return call()

        with ThreadPoolExecutor(3) as pool:
            waits = [0.0, 0.002 * (number % 12), 0.004 * (number % 7)]
            calls: list[Callable[[], object]] = [publish_it, gather, gather]
            futures = [pool.submit(at_once, call, wait) for call, wait in zip(calls, waits, strict=True)]
            made, *reports = [future.result() for future in futures]
        assert isinstance(made, PublishedRelease)
        assert read_release(store, "p", made.digest)["small"] == b"small"
        for report in reports:
            assert isinstance(report, CollectionReport)
            postponed += bool(report.postponed)
            deleted += bool(report.deleted)
    assert postponed + deleted > 0  # otherwise the test proves nothing
    assert not list(store.list("leases/"))


def test_collection_waits_for_a_publish_within_its_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PAUSE_S", 0.01)
    passed = timedelta(0)

    def now() -> datetime:
        return datetime.now(UTC) + passed

    store = MemoryObjectStore(now=now)
    orphan = keys.blob("0" * 64)
    store.write(orphan, b"x")
    policy = CollectionPolicy(max_share=1.0, patience=timedelta(seconds=60))
    pause = threading.Event()

    def gather() -> CollectionReport:
        return collect_garbage(store, frozenset(), policy=policy, allow_empty=True, clock=now)

    passed += 2 * DAY
    gather()
    passed += DAY
    lease = keys.publish_lease("a" * 32)
    store.write(lease, b"rubbish counts too")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(gather)
        while not any(key.startswith(keys.COLLECT_LEASES) for key in list(store.deletes)):
            pause.wait(0.01)  # until it has looked and closed
            assert not running.done()
        assert store.size(orphan) == 1
        store.delete(lease)
        report = running.result(timeout=60)
    assert not report.postponed
    assert store.size(orphan) is None
