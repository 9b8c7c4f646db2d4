"""`ensure` fetches a release before others, waits and pins it. It ends in time, and says why it failed."""

from __future__ import annotations

import fcntl
import random
import threading
import time
from collections.abc import Callable, Iterator, Set
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from blobsync import (
    BlobNotFoundError,
    BucketAccessDeniedError,
    BucketUnavailableError,
    CorruptBlobError,
    LocalStore,
    LocalStoreError,
    ReleaseAbsentError,
    ReleaseRef,
    ReleaseState,
    RetryPolicy,
    Syncer,
    SyncerClosedError,
)
from blobsync.bucket import keys
from blobsync.bucket.ports import OnProgress
from blobsync.local.releases import Release
from blobsync.release.manifest import CHUNK_BYTES
from blobsync.sync.table import SyncTable
from blobsync.sync.waits import EnsureCall
from tests.blobsync.local_store_samples import flip_a_byte_unseen, sample
from tests.blobsync.sync_samples import SOON, Rig, state_of

Eventually = Callable[..., None]
SHORT = timedelta(milliseconds=300)


@pytest.fixture
def others() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as made:
        yield made


class Gate:
    """Blocks every copy from the store until the gate is opened, or the syncer is closed."""

    def __init__(self, rig: Rig) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.passed: list[str] = []
        self._copy = rig.store.copy
        rig.store.copy = self.copy  # type: ignore[method-assign]

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, on_progress: OnProgress) -> None:
        self.reached.set()
        while not self.opened.wait(0.01):
            on_progress(0)
        self.passed.append(key)
        self._copy(key, fd, start=start, size_bytes=size_bytes, on_progress=on_progress)


def ensuring(others: ThreadPoolExecutor, syncer: Syncer, ref: ReleaseRef) -> Future[Path]:
    return others.submit(syncer.ensure, ref, SOON)


def test_ensure_that_is_late_tells_the_failure_that_kept_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = rig.publish("p", a="1")
    failed, end, copy = threading.Event(), threading.Event(), rig.store.copy

    def hindered(*args: Any, **more: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise LocalStoreError("there is no room")
        end.wait(60)
        return copy(*args, **more)

    monkeypatch.setattr(rig.store, "copy", hindered)
    syncer = rig.syncer(start=False)
    try:
        with pytest.raises(LocalStoreError, match="there is no room"):
            syncer.ensure(ref, timedelta(milliseconds=500))
    finally:
        end.set()


def test_release_comes_though_the_wanted_set_is_replaced_meanwhile(
    rig: Rig, others: ThreadPoolExecutor, eventually: Eventually
) -> None:
    p, q = rig.publish("p", a="1", b="2"), rig.publish("q", c="3")
    gate, syncer = Gate(rig), rig.syncer(p, q)
    call = ensuring(others, syncer, p)
    assert gate.reached.wait(60)

    for wanted in ([q], [], [p, q], [q]):
        syncer.want(wanted)
    eventually(lambda: set(syncer.readiness().releases) == {q})
    gate.opened.set()

    assert {path.name for path in call.result(60).iterdir()} == {"a", "b"}
    eventually(lambda: syncer.readiness().is_ready(q))
    assert set(syncer.readiness().releases) == {q}


def test_release_that_somebody_waits_for_goes_before_all_that_is_wanted(
    rig: Rig, others: ThreadPoolExecutor, eventually: Eventually
) -> None:
    p, q = rig.publish("p", **{f"f{number}": f"{number}" for number in range(60)}), rig.publish("q", a="x")
    gate, syncer = Gate(rig), rig.syncer(p, threads=1)
    eventually(lambda: syncer.progress().total_objects == 60)
    call = ensuring(others, syncer, q)
    eventually(lambda: syncer.progress().total_objects == 61)
    gate.opened.set()

    call.result(60)
    assert gate.passed.index(rig.key(q, "a")) <= 2  # one object was in transfer, the next perhaps started


def test_calls_end_when_the_thread_that_serves_them_meets_a_defect_and_later_ones_succeed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    p, syncer = rig.publish("p", a="1"), rig.syncer(start=False)

    def defect(*_args: object) -> None:
        raise RuntimeError("a defect of ours")

    monkeypatch.setattr(syncer._loop._table, "looked", defect)

    with pytest.raises(BucketUnavailableError, match="failed"):
        syncer.ensure(p, SOON)
    assert syncer.ensure(p, SOON).is_dir()


def test_jobs_that_a_defect_meets_under_way_are_done_again(rig: Rig, eventually: Eventually) -> None:
    p = rig.publish("p", **{f"f{number}": str(number) for number in range(30)})
    gate, syncer = Gate(rig), rig.syncer(p)
    assert gate.reached.wait(60)

    def defect(_now_s: float) -> None:
        raise RuntimeError("a defect of ours")

    syncer._loop._inbox.put(defect)
    eventually(lambda: any("failed" in one.releases[p].reason for one in rig.seen if p in one.releases))
    gate.opened.set()

    eventually(lambda: syncer.readiness().is_ready(p))
    eventually(lambda: syncer._loop._free() == (2, syncer._loop._window))


def test_two_calls_for_one_release_fetch_each_object_once(rig: Rig, others: ThreadPoolExecutor) -> None:
    p = rig.publish("p", **{f"f{number}": str(number) for number in range(30)})
    gate, syncer = Gate(rig), rig.syncer(start=False)
    calls = [ensuring(others, syncer, p) for _ in range(5)]
    assert gate.reached.wait(60)
    gate.opened.set()

    assert len({call.result(60) for call in calls}) == 1
    assert {key: count for key, count in rig.store.reads.items() if count > 1} == {}


def test_call_after_one_that_was_late_does_not_fetch_what_is_under_way_still(
    rig: Rig, others: ThreadPoolExecutor
) -> None:
    p = rig.put(sample({"small": b"1", "large": b"x" * (CHUNK_BYTES + 1)}))
    gate, syncer = Gate(rig), rig.syncer(start=False)
    with pytest.raises(BucketUnavailableError, match="in time"):
        syncer.ensure(p, SHORT)
    call = ensuring(others, syncer, p)
    assert gate.reached.wait(60)
    gate.opened.set()

    assert {path.name for path in call.result(60).iterdir()} == {"small", "large"}
    copied = {key: rig.store.read_bytes[key] for key in gate.passed}
    assert sorted(copied.values()) == sorted(item.size_bytes for item in rig.samples[p].objects)


def test_release_that_is_only_waited_for_is_not_in_readiness_and_forgotten_afterwards(
    rig: Rig, eventually: Eventually
) -> None:
    p, q = rig.publish("p", a="1"), rig.publish("q", b="2", c="3")
    syncer = rig.syncer(p)

    syncer.ensure(q, SOON)

    eventually(lambda: syncer.readiness().is_ready(p))
    eventually(lambda: syncer.progress().total_objects == 1)
    assert not any(q in seen.releases for seen in rig.seen)
    assert syncer.readiness().total_bytes == 1


def test_call_ends_with_the_syncer_that_is_closed_meanwhile(rig: Rig, others: ThreadPoolExecutor) -> None:
    p, gate = rig.publish("p", a="1"), Gate(rig)
    syncer = rig.syncer(start=False)
    call = ensuring(others, syncer, p)
    assert gate.reached.wait(60)

    syncer.close(SOON)

    with pytest.raises(SyncerClosedError):
        call.result(60)
    with pytest.raises(SyncerClosedError):
        syncer.ensure(p, SOON)


@pytest.mark.parametrize("what", ["kept", "materialise"])
def test_disk_that_hangs_does_not_make_a_call_outlast_its_time(rig: Rig, what: str) -> None:
    p, healed = rig.publish("p", a="1"), threading.Event()

    class Hanging(LocalStore):
        def kept(self, ref: ReleaseRef) -> Release | None:
            if what == "kept":
                healed.wait(60)
            return super().kept(ref)

        def materialise(self, ref: ReleaseRef) -> Path:
            if what == "materialise":
                healed.wait(60)
            return super().materialise(ref)

    syncer = rig.syncer(start=False, local=Hanging(rig.folder / "local"))
    began_s = time.monotonic()
    try:
        with pytest.raises(BucketUnavailableError, match="in time"):
            syncer.ensure(p, SHORT)
        assert time.monotonic() - began_s < 30
    finally:
        healed.set()
    assert (syncer.ensure(p, SOON) / "a").read_text() == "1"


def test_call_waits_for_the_repair_of_a_damaged_large_executable(rig: Rig, eventually: Eventually) -> None:
    data = bytes(5 << 20)
    p = rig.put(sample({"tool": data}, executable={"tool"}))
    syncer = rig.syncer(p)
    eventually(lambda: syncer.readiness().is_ready(p))
    flip_a_byte_unseen(rig.path(p, "tool"))

    assert (syncer.ensure(p, SOON) / "tool").read_bytes() == data
    assert len(list((rig.folder / "local" / "quarantine").iterdir())) == 1


def test_call_that_fails_ends_its_pin(rig: Rig) -> None:
    held: list[frozenset[str]] = []

    class Noting(LocalStore):
        def hold(self, releases: Set[str], at_most_s: float | None = None) -> None:
            super().hold(releases, at_most_s)
            held.append(frozenset(releases))

    syncer, nothing = rig.syncer(start=False, local=Noting(rig.folder / "local")), ReleaseRef("p", "0" * 64)

    with pytest.raises(ReleaseAbsentError):
        syncer.ensure(nothing, SOON)

    assert held == [{nothing.digest}, frozenset()]


def test_call_ends_the_back_off_of_a_release_that_is_wanted_too(rig: Rig, eventually: Eventually) -> None:
    p = rig.publish("p", a="1")
    rig.store.fail(rig.key(p, "a"), BucketUnavailableError("500"))
    hour = timedelta(hours=1)
    syncer = rig.syncer(p, retry=RetryPolicy(first_wait=hour, max_wait=hour))
    eventually(lambda: state_of(syncer, p) is ReleaseState.UNAVAILABLE)
    rig.store.heal(rig.key(p, "a"))

    assert (syncer.ensure(p, SOON) / "a").read_text() == "1"
    eventually(lambda: syncer.readiness().is_ready(p))


def test_call_ends_the_back_off_of_an_object_that_another_release_failed_to_get(
    rig: Rig, eventually: Eventually
) -> None:
    p, q = rig.publish("p", a="1"), rig.publish("q", a="1")
    rig.store.fail(rig.key(p, "a"), BlobNotFoundError("404"))
    hour = timedelta(hours=1)
    syncer = rig.syncer(p, retry=RetryPolicy(first_wait=hour, max_wait=hour))
    eventually(lambda: state_of(syncer, p) is ReleaseState.ABSENT)
    rig.store.heal(rig.key(p, "a"))

    assert (syncer.ensure(q, SOON) / "a").read_text() == "1"


def test_answer_to_a_question_that_was_asked_before_the_call_does_not_end_it(
    rig: Rig, others: ThreadPoolExecutor, eventually: Eventually
) -> None:
    p = rig.publish("p", a="1")
    asked, published, read = threading.Event(), threading.Event(), rig.store.read

    def absent_at_first(key: str, **more: Any) -> Iterator[bytes]:
        if key == keys.manifest(p.name, p.digest) and not asked.is_set():
            asked.set()
            published.wait(60)
            raise BlobNotFoundError(key)
        return read(key, **more)

    rig.store.read = absent_at_first  # type: ignore[method-assign]
    syncer = rig.syncer(p)
    assert asked.wait(60)
    call = ensuring(others, syncer, p)
    eventually(lambda: p in syncer._waits)
    published.set()

    assert (call.result(60) / "a").read_text() == "1"


def test_calls_and_wants_of_many_threads_all_end_well(rig: Rig, others: ThreadPoolExecutor) -> None:
    refs = [
        rig.publish(f"p{number}", **{f"f{each}": f"{each % 7}" for each in range(number, number + 5)})
        for number in range(6)
    ]
    syncer = rig.syncer(*refs[:2], threads=2)

    def one(seed: int) -> None:
        dice = random.Random(seed)
        for _ in range(15):
            syncer.want(dice.sample(refs, dice.randrange(len(refs))))
            with syncer.pinned(dice.choice(refs), SOON) as folder:
                assert len(list(folder.iterdir())) == 5

    for call in [others.submit(one, seed) for seed in range(6)]:
        call.result(60)


REF = ReleaseRef("p", "0" * 64)


def waiting(seconds: float = 60.0) -> EnsureCall:
    return EnsureCall(REF, time.monotonic() + seconds)


def ended_by(wait: EnsureCall) -> BaseException | None:
    try:
        wait.pause(0)
        return wait._error
    finally:
        wait.end(SyncerClosedError("the test is over"))


def test_failure_that_may_heal_never_ends_a_wait_and_one_that_will_not_does_at_once() -> None:
    now = time.monotonic() + 1
    hopeful, denied = waiting(), BucketAccessDeniedError("no")
    for _ in range(100):
        hopeful.look_failed(BucketUnavailableError("500"), now)
        hopeful.fetch_failed("a", LocalStoreError("full"), now)
    assert ended_by(hopeful) is None

    for tell in ("look_failed", "fetch_failed"):
        wait = waiting()
        args = ("a", denied, now) if tell == "fetch_failed" else (denied, now)
        getattr(wait, tell)(*args)
        assert ended_by(wait) is denied


@pytest.mark.parametrize("error", [CorruptBlobError("wrong"), BlobNotFoundError("packs/a")])
def test_object_that_is_absent_or_wrong_ends_a_wait_the_second_time(error: Exception) -> None:
    now = time.monotonic() + 1
    once, twice, healed = waiting(), waiting(), waiting()
    for wait in (once, twice, healed):
        wait.fetch_failed("a", error, now)
    healed.came("a")
    twice.fetch_failed("a", error, now)
    healed.fetch_failed("a", error, now)
    once.fetch_failed("b", error, now)

    assert ended_by(once) is None
    assert ended_by(twice) is error
    assert ended_by(healed) is None


def test_time_that_is_over_tells_what_will_not_heal_before_what_failed_last() -> None:
    now = time.monotonic() + 1
    wait, absent = waiting(0.0), BlobNotFoundError("packs/a")
    wait.fetch_failed("a", absent, now)
    wait.fetch_failed("b", BucketUnavailableError("500"), now)

    with pytest.raises(BlobNotFoundError):
        wait.complete()
    wait.came("a")
    with pytest.raises(BucketUnavailableError, match="500"):
        wait.complete()
    wait.came("b")
    with pytest.raises(BucketUnavailableError, match="in time"):
        wait.complete()


def test_ensure_goes_on_after_a_moment_in_which_the_system_allows_no_thread(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, start, refused = rig.publish("p", a="1"), threading.Thread.start, list[str]()

    def start_later(thread: threading.Thread) -> None:
        if thread.name.startswith(("blobsync-look", "blobsync-fetch")) and len(refused) < 3:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_later)

    assert rig.syncer(start=False).ensure(ref, SOON).is_dir()
    assert len(refused) == 3


def test_calls_end_in_time_though_another_process_has_locked_the_store(
    rig: Rig, others: ThreadPoolExecutor, eventually: Eventually
) -> None:
    p, q = rig.publish("p", a="1"), rig.publish("q", b="2")
    syncer = rig.syncer()
    with (rig.folder / "local" / "LOCK").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        calls = [others.submit(syncer.ensure, p, SHORT) for _ in range(6)]
        for call in calls:
            with pytest.raises(LocalStoreError, match=r"locked"):
                call.result(60)

    syncer.want([q])
    eventually(lambda: syncer.readiness().is_ready(q))


def test_defect_before_the_first_report_leaves_no_wanted_release_out(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    p = rig.publish("p", a="1")

    def defect(*_args: object) -> None:
        raise AssertionError("a defect of this package")

    monkeypatch.setattr(SyncTable, "start_due", defect)
    syncer = rig.syncer(p)

    eventually(lambda: p in syncer.readiness().releases)
    assert not syncer.readiness().all_ready
