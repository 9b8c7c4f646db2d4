"""The lease of a publish: collections see it, and the publish sees their leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from blobsync import (
    BucketUnavailableError,
    ObjectInfo,
    PublishLapsedError,
    RetryPolicy,
    collect,
    publish,
)
from blobsync.bucket import keys, leases
from blobsync.bucket.leases import (
    MAX_TTL,
    RENEWALS_PER_TTL,
    BucketLease,
    Lease,
    live_leases,
    publish_lease,
    store_time,
)
from blobsync.bucket.ports import OnProgress, PatientStore, ignore_progress
from blobsync.publishing import publisher
from blobsync.testing.memory import MemoryObjectStore

QUICK = RetryPolicy(
    first_wait=timedelta(milliseconds=1), max_wait=timedelta(milliseconds=5), deadline=timedelta(seconds=60)
)
START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class Clock:
    """The store's clock. It does not advance by itself."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


def a_lease(store: MemoryObjectStore, **options: object) -> AbstractContextManager[BucketLease]:
    retry = options.pop("retry", QUICK)
    patient = PatientStore(store, retry, threading.Event())  # type: ignore[arg-type]
    return publish_lease(patient, **{"subject": "p", "holder": "me", **options})  # type: ignore[arg-type]


def test_lease_reads_back_and_rubbish_does_not() -> None:
    lease = Lease("flights", "ci@host", START, 30 * MINUTE)
    data = lease.encode(START + MINUTE)

    assert Lease.parse(data) == lease
    assert b'"expires":"2026-01-02T03:35:05Z"' in data
    for rubbish in (b"", b"[]", b"{}", b"\xff", data.replace(b":1,", b":2,"), data.replace(b"1800", b"true")):
        assert Lease.parse(rubbish) is None
    assert Lease.parse(Lease("p", "me", START, 10 * MAX_TTL).encode(START)) == Lease(
        "p", "me", START, MAX_TTL
    )


def test_lease_counts_until_its_time_since_the_store_saw_it_last() -> None:
    clock = Clock()
    store = MemoryObjectStore(now=clock)
    key = keys.publish_lease("a" * 32)
    # By its holder's clock it has long expired, but that clock does not count.
    store.write(
        key, Lease("p", "me", START - timedelta(days=9), 5 * MINUTE).encode(START - timedelta(days=9))
    )

    def live(after: timedelta) -> list[str]:
        return [item.key for item in live_leases(store, keys.PUBLISH_LEASES, START + after)]

    assert live(4 * MINUTE) == [key]
    assert live(5 * MINUTE) == []
    assert live_leases(store, keys.COLLECT_LEASES, START) == []


@pytest.mark.parametrize("data", [b"rubbish", b"x" * 10_000])
def test_unreadable_lease_counts_for_the_longest_time(data: bytes) -> None:
    store = MemoryObjectStore(now=Clock())
    store.write(keys.publish_lease("a" * 32), data)

    (found,) = live_leases(store, keys.PUBLISH_LEASES, START + MAX_TTL - MINUTE)
    assert found.lease is None
    assert live_leases(store, keys.PUBLISH_LEASES, START + MAX_TTL) == []


def test_lease_is_there_while_a_publish_runs_and_gone_afterwards(tmp_path: Path) -> None:
    seen: list[Lease | None] = []

    class Looking(MemoryObjectStore):
        def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
            if not key.startswith(keys.PUBLISH_LEASES):
                live = live_leases(self, keys.PUBLISH_LEASES, datetime.now(UTC))
                seen.extend(item.lease for item in live)
            super().write(key, data, on_progress=on_progress)

    (tmp_path / "a").write_text("a")
    store = Looking()
    publish(store, name="p", files=collect(tmp_path, include=["*"]), retry=QUICK, published_by="me")

    assert [(lease.subject, lease.holder) for lease in seen if lease] == [("p", "me")] * 4
    assert list(store.list("leases/")) == []


def test_lease_is_renewed_while_it_is_held(eventually: Callable[..., None]) -> None:
    store = MemoryObjectStore()
    with a_lease(store, ttl=timedelta(seconds=RENEWALS_PER_TTL / 10)) as lease:
        eventually(lambda: store.writes.count(lease.key) > 3)
    written = len(store.writes)
    assert store.deletes == [lease.key]
    assert store.writes[written:] == []


def test_lease_that_was_not_renewed_in_time_is_noticed_and_not_taken_up_again() -> None:
    now_s = 0.0
    with a_lease(MemoryObjectStore(), ttl=MINUTE, clock_s=lambda: now_s) as lease:
        now_s = 59.0
        lease.check()
        now_s = 60.0
        with pytest.raises(PublishLapsedError, match="60 s"):
            lease.check()
        with pytest.raises(PublishLapsedError):
            lease.write()


def test_publish_whose_lease_lapsed_shows_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("a")
    slept = 0.0
    monkeypatch.setattr(publisher, "publish_lease", partial(publish_lease, clock_s=lambda: slept))

    class Sleepy(MemoryObjectStore):
        def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
            nonlocal slept
            super().write(key, data, on_progress=on_progress)
            if key.startswith(keys.PACKS):
                slept = 3_600.0  # the host was suspended for an hour

    store = Sleepy()
    with pytest.raises(PublishLapsedError):
        publish(store, name="p", files=collect(tmp_path, include=["*"]), retry=QUICK)
    assert list(store.list("releases/")) == []


def test_publish_whose_lease_lapses_between_two_tries_of_the_last_write_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("a")
    slept = 0.0
    monkeypatch.setattr(publisher, "publish_lease", partial(publish_lease, clock_s=lambda: slept))

    class Unlucky(MemoryObjectStore):
        def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
            nonlocal slept
            if key.startswith(keys.RELEASES) and not slept:
                slept = 3_600.0
                raise BucketUnavailableError("it does not answer for an hour")
            super().write(key, data, on_progress=on_progress)

    store = Unlucky()
    began_s = time.monotonic()
    with pytest.raises(PublishLapsedError):
        publish(store, name="p", files=collect(tmp_path, include=["*"]), retry=QUICK)
    assert list(store.list("releases/")) == []
    assert time.monotonic() - began_s < QUICK.deadline.total_seconds() / 2  # it is not tried again


def test_publish_waits_for_a_collection_that_is_deleting(eventually: Callable[..., None]) -> None:
    store = MemoryObjectStore()
    collector = keys.collect_lease("c" * 32)
    store.write(collector, Lease("gc", "me", START, 30 * MINUTE).encode(START))
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with a_lease(store):
            entered.set()
            leave.wait(60)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        eventually(lambda: len(store.writes) >= 3)  # the lease exists, and is renewed while the publish waits
        assert not entered.is_set()
        store.delete(collector)
        eventually(entered.is_set)
    finally:
        store.delete(collector)
        leave.set()
        holder.join(60)


def test_lease_that_the_store_lost_at_once_is_written_again() -> None:
    """rclone did this once under load: it did not list an object that it had just stored."""

    class Losing(MemoryObjectStore):
        lost = 0

        def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
            super().write(key, data, on_progress=on_progress)
            if self.lost < 2:
                self.lost += 1
                self.delete(key)

    store = Losing()
    with a_lease(store) as lease:
        assert store.lost == 2
        assert [info.key for info in store.list(keys.PUBLISH_LEASES)] == [lease.key]


def test_lease_that_the_store_never_shows_ends_the_publish_in_time() -> None:
    class Hiding(MemoryObjectStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            found = super().list(prefix, start_after)
            return (info for info in found if not info.key.startswith(keys.PUBLISH_LEASES))

    brief = RetryPolicy(
        first_wait=timedelta(milliseconds=1),
        max_wait=timedelta(milliseconds=5),
        deadline=timedelta(milliseconds=50),
    )
    with (
        pytest.raises(BucketUnavailableError, match="does not list the lease"),
        a_lease(Hiding(), retry=brief),
    ):
        pass


def test_lease_whose_first_write_had_no_answer_is_not_left_behind() -> None:
    class Unanswered(MemoryObjectStore):
        def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
            super().write(key, data, on_progress=on_progress)
            raise BucketUnavailableError("no answer")

    brief = RetryPolicy(
        first_wait=timedelta(milliseconds=1),
        max_wait=timedelta(milliseconds=5),
        deadline=timedelta(milliseconds=50),
    )
    store = Unanswered()
    with pytest.raises(BucketUnavailableError, match="no answer"), a_lease(store, retry=brief):
        pass
    assert list(store.list("leases/")) == []


def test_publish_gives_up_on_a_collection_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "COLLECTION_PATIENCE", timedelta(seconds=-1))
    store = MemoryObjectStore()
    store.write(keys.collect_lease("c" * 32), b"?")

    with pytest.raises(BucketUnavailableError, match="collection"), a_lease(store):
        pass
    assert [info.key for info in store.list("leases/")] == [keys.collect_lease("c" * 32)]


def test_store_time_is_that_of_the_key_itself() -> None:
    clock = Clock()
    store = MemoryObjectStore(now=clock)
    store.write("a/key", b"")
    clock.now += MINUTE
    store.write("a/key-2", b"")

    assert store_time(store, "a/key") == START
    assert isinstance(next(iter(store.list("a/"))), ObjectInfo)
