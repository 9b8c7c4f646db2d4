"""Large blobs: fetched in chunks on several threads, resumed, and never a long delay for other objects."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from datetime import timedelta
from typing import Any

import pytest

from blobsync import BucketUnavailableError, ReleaseRef, ReleaseState
from blobsync.bucket.ports import OnProgress
from blobsync.release.manifest import CHUNK_BYTES
from blobsync.sync.pool import DaemonPool, Lane
from tests.blobsync.local_store_samples import sample
from tests.blobsync.sync_samples import SOON, Rig, lacks, state_of

Eventually = Callable[..., None]
CHUNKS = 5
LARGE = random.Random(1).randbytes((CHUNKS - 1) * CHUNK_BYTES + 12345)


class Copies:
    """Intercepts `copy` of a store: records each call, and runs a function of the test first."""

    def __init__(self, rig: Rig) -> None:
        self.started: list[tuple[str, int]] = []
        self.threads: dict[str, set[str]] = {}
        self.at_once = Counter[str]()
        self.most_at_once = Counter[str]()
        self.before: Callable[[str, int], None] = lambda _key, _start: None
        self._lock = threading.Lock()
        self._copy = rig.store.copy
        rig.store.copy = self.copy  # type: ignore[method-assign]

    def copy(self, key: str, fd: int, *, start: int, size_bytes: int, on_progress: OnProgress) -> None:
        with self._lock:
            self.started.append((key, start))
            self.threads.setdefault(key, set()).add(threading.current_thread().name)
            self.at_once[key] += 1
            self.most_at_once[key] = max(self.most_at_once[key], self.at_once[key])
        try:
            self.before(key, start)
            self._copy(key, fd, start=start, size_bytes=size_bytes, on_progress=on_progress)
        finally:
            with self._lock:
                self.at_once[key] -= 1


def large(rig: Rig, name: str = "p", **files: bytes) -> ReleaseRef:
    return rig.put(sample(files or {"large": LARGE}, name=name, members=1))


def test_several_threads_work_on_one_blob_each_chunk_once(rig: Rig) -> None:
    p, copies, together = large(rig), Copies(rig), threading.Barrier(3)
    key = rig.key(p, "large")
    copies.before = lambda _key, start: together.wait(60) if start < 3 * CHUNK_BYTES else None  # type: ignore[assignment, return-value]
    syncer = rig.syncer(start=False, threads=3)

    path = syncer.ensure(p, SOON)

    assert (path / "large").read_bytes() == LARGE
    assert copies.most_at_once[key] == 3
    assert sorted(start for _, start in copies.started) == [n * CHUNK_BYTES for n in range(CHUNKS)]
    assert syncer.progress().fetched_bytes == len(LARGE)


def test_no_more_chunks_are_submitted_than_there_are_threads(
    rig: Rig, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the memory of a fetch does not grow with the size of its blob."""
    chunks, submit = list[object](), DaemonPool.submit

    def counted(self: DaemonPool, call: Callable[[], None], **how: Any) -> Future[None]:
        if how.get("lane") is Lane.LARGE and how["rank"][1] == 0:
            chunks.append(call)
        return submit(self, call, **how)

    monkeypatch.setattr(DaemonPool, "submit", counted)
    p, copies, gate = large(rig), Copies(rig), threading.Event()
    copies.before = lambda _key, _start: gate.wait(60)  # type: ignore[assignment, return-value]
    syncer = rig.syncer(p, threads=2)
    eventually(lambda: len(copies.started) == 2)
    at_first = len(chunks)
    gate.set()

    eventually(lambda: syncer.readiness().is_ready(p))
    assert (at_first, len(chunks)) == (2, CHUNKS)


def test_small_objects_have_their_turn_between_the_chunks_of_a_large_one(
    rig: Rig, eventually: Eventually
) -> None:
    p = large(rig, large=LARGE, **{f"s{number}": b"%d" % number for number in range(3)})
    copies, gate = Copies(rig), threading.Event()
    key = rig.key(p, "large")
    copies.before = lambda at, _start: gate.wait(60) if at == key else None  # type: ignore[assignment, return-value]
    syncer = rig.syncer(p, threads=1)
    eventually(lambda: copies.started)
    gate.set()

    eventually(lambda: syncer.readiness().is_ready(p))
    last_chunk = max(place for place, (at, _) in enumerate(copies.started) if at == key)
    before = {at for at, _ in copies.started[:last_chunk]}
    assert before > {key}, "a small object arrived before the large one was complete"


def test_one_chunk_that_is_wrong_once_is_fetched_again_alone(rig: Rig) -> None:
    p, copies = large(rig), Copies(rig)
    key, wrong = rig.key(p, "large"), 2 * CHUNK_BYTES

    def damage_once(_key: str, start: int) -> None:
        if start == wrong:
            if copies.started.count((key, wrong)) == 1:
                rig.store.corrupt(key, wrong + 7)
            else:
                rig.store.heal(key)

    copies.before = damage_once
    path = rig.syncer(start=False).ensure(p, SOON)

    assert (path / "large").read_bytes() == LARGE
    assert Counter(copies.started)[key, wrong] == 2
    assert len(copies.started) == CHUNKS + 1


def test_blob_that_stays_wrong_is_corrupt_and_what_was_right_is_not_fetched_again(
    rig: Rig, eventually: Eventually
) -> None:
    p, copies = large(rig), Copies(rig)
    key, wrong = rig.key(p, "large"), 3 * CHUNK_BYTES
    rig.store.corrupt(key, wrong + 7)
    syncer = rig.syncer(p)
    eventually(lambda: state_of(syncer, p) is ReleaseState.CORRUPT)
    assert not rig.path(p, "large").exists()

    rig.store.heal(key)
    eventually(lambda: syncer.readiness().is_ready(p))

    assert (syncer.ensure(p, SOON) / "large").read_bytes() == LARGE
    counts = Counter(start for _, start in copies.started)
    assert [counts[start] for start in (0, CHUNK_BYTES, 2 * CHUNK_BYTES)] == [1, 1, 1]
    assert counts[wrong] > 2


def test_broken_off_blob_is_resumed_by_the_next_process(rig: Rig, eventually: Eventually) -> None:
    p, copies = large(rig), Copies(rig)

    def break_off(_key: str, start: int) -> None:
        if start >= 2 * CHUNK_BYTES:
            raise BucketUnavailableError("away")

    copies.before = break_off
    first = rig.syncer(p, threads=1)
    eventually(lambda: state_of(first, p) is ReleaseState.UNAVAILABLE)
    rig.stop()
    copies.before = lambda _key, _start: None
    copies.started.clear()

    second = rig.syncer(p)

    eventually(lambda: second.readiness().is_ready(p))
    assert sorted(start for _, start in copies.started) == [n * CHUNK_BYTES for n in range(2, CHUNKS)]
    assert second.progress().fetched_bytes == len(LARGE) - 2 * CHUNK_BYTES


def test_closing_in_the_middle_of_a_blob_keeps_what_came_and_leaves_no_thread(
    rig: Rig, eventually: Eventually
) -> None:
    p, copies = large(rig), Copies(rig)
    stuck = threading.Event()
    original = rig.store.copy

    def stall(key: str, fd: int, *, start: int, size_bytes: int, on_progress: OnProgress) -> None:
        if start >= 2 * CHUNK_BYTES:
            stuck.set()
            while True:
                on_progress(0)
                threading.Event().wait(0.01)
        original(key, fd, start=start, size_bytes=size_bytes, on_progress=on_progress)

    rig.store.copy = stall  # type: ignore[method-assign]
    syncer = rig.syncer(p)
    eventually(stuck.is_set)
    eventually(lambda: len([at for at in copies.started if at[1] < 2 * CHUNK_BYTES]) == 2)

    syncer.close(timedelta(seconds=20))

    assert not [thread for thread in threading.enumerate() if thread.name.startswith("blobsync-")]
    assert len(list((rig.folder / "local" / "partial").iterdir())) == 1
    rig.store.copy = original  # type: ignore[method-assign]
    copies.started.clear()
    rig.stop()
    again = rig.syncer(p)
    eventually(lambda: again.readiness().is_ready(p))
    assert len(copies.started) <= CHUNKS - 2 + 2  # two chunks were being written, and may be lost


def test_one_large_blob_that_cannot_be_had_holds_up_no_other(rig: Rig, eventually: Eventually) -> None:
    files = {f"l{number}": bytes([number]) * (CHUNK_BYTES + 1) for number in range(6)}
    p = large(rig, **files)
    rig.store.fail(rig.key(p, "l0"), BucketUnavailableError("500"))
    syncer = rig.syncer(p, threads=2)

    eventually(lambda: lacks(syncer, p, ["l0"]))
    rig.store.heal(rig.key(p, "l0"))
    eventually(lambda: syncer.readiness().is_ready(p))


def test_blob_between_the_largest_packed_one_and_one_of_chunks_is_fetched_whole_and_resumed(
    rig: Rig, eventually: Eventually
) -> None:
    data = random.Random(2).randbytes(9 << 20)
    p = large(rig, middle=data)
    key = rig.key(p, "middle")
    rig.store.truncate(key, 5 << 20)
    syncer = rig.syncer(p)
    eventually(lambda: state_of(syncer, p) is ReleaseState.UNAVAILABLE)
    rig.store.heal(key)

    eventually(lambda: syncer.readiness().is_ready(p))
    assert rig.store.read_bytes[key] == len(data)
    assert (syncer.ensure(p, SOON) / "middle").read_bytes() == data
