"""How a collection deletes: while it holds its lease, as long as it may, however many deletes fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

import pytest

from blobsync import (
    BucketAccessDeniedError,
    ObjectInfo,
)
from blobsync.bucket import keys
from blobsync.collection import deletion as deletion_module
from blobsync.collection.decision import CollectionPolicy
from blobsync.collection.inventory import Kind, Tally
from blobsync.progress import Progress, WorkPhase
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.collection_samples import (
    DAY,
    World,
    a_lease,
    digest,
)

MINUTE = timedelta(minutes=1)


def test_lease_is_lost_when_the_host_slept_and_nothing_more_is_deleted() -> None:
    world = World()

    class Sleepy(MemoryObjectStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            yield from super().list(prefix, start_after)
            if not prefix and any(key.startswith(keys.COLLECT_LEASES) for key in self.writes[-1:]):
                world.clock.forward(timedelta(minutes=11))

    world.store = Sleepy(now=world.clock)
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    report = world.twice()
    assert "lease" in report.postponed
    assert report.deleted == {}
    assert world.names() == {keys.blob(digest("x"))}


def test_lease_is_renewed_while_the_look_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    class Slow(MemoryObjectStore):
        def read(self, key: str, *, start: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
            if key.startswith("layouts/"):
                world.clock.forward(timedelta(minutes=4))
            return super().read(key, start=start, size_bytes=size_bytes)

    world.store = Slow(now=world.clock)
    for number in range(2):
        world.put(f"p{number}", ["a"])
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    report = world.twice(policy=CollectionPolicy(max_share=1, patience=timedelta(0)))
    assert report.deleted == {Kind.BLOB: Tally(1, 1)}
    assert sum(key.startswith(keys.COLLECT_LEASES) for key in world.store.writes) > 1


class Failing(MemoryObjectStore):
    """Refuses all batches, and some single deletes."""

    refuse: frozenset[str] = frozenset()
    refuse_all = False

    def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
        raise BucketAccessDeniedError("no batches")

    def delete(self, key: str) -> None:
        if key in self.refuse or (self.refuse_all and not key.startswith(("gc/", "leases/"))):
            raise BucketAccessDeniedError(f"{key} may not be deleted")
        super().delete(key)


def failing_world(orphans: int) -> tuple[World, Failing]:
    world = World()
    world.store = store = Failing(now=world.clock)
    for number in range(orphans):
        store.write(keys.blob(digest(f"{number}")), b"x")
    world.clock.forward(2 * DAY)
    return world, store


def test_failed_delete_does_not_stop_the_rest() -> None:
    world, store = failing_world(30)
    store.refuse = frozenset(keys.blob(digest(f"{number}")) for number in range(10))
    report = world.twice()
    assert report.deleted == {Kind.BLOB: Tally(20, 20)}
    assert report.failed_count == 10
    assert {key for key, _ in report.failed} == store.refuse == world.names()
    store.refuse = frozenset()
    assert world.collect().deleted == {Kind.BLOB: Tally(10, 10)}


def test_deletion_asks_whether_it_may_before_each_request() -> None:
    class OneByOne(MemoryObjectStore):
        """Like a server without batch deletion: one request for each object, and each takes five minutes."""

        def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
            assert before_each is not None
            for key in keys:
                before_each()
                world.clock.forward(timedelta(minutes=5))
                self.delete(key)

    world = World()
    world.store = store = OneByOne(now=world.clock)
    for number in range(4):
        store.write(keys.blob(digest(f"{number}")), b"x")
    world.clock.forward(2 * DAY)
    written: list[str] = []
    write = store.write
    store.write = lambda key, *args, **kwargs: (written.append(key), write(key, *args, **kwargs))[1]  # type: ignore[method-assign]

    report = world.twice()

    assert report.deleted == {Kind.BLOB: Tally(4, 4)}
    assert sum(key.startswith(keys.COLLECT_LEASES) for key in written) >= 4


def test_store_that_takes_no_deletes_at_all_ends_the_run_soon() -> None:
    world, store = failing_world(60)
    store.refuse_all = True
    report = world.twice()
    assert report.failed_count == deletion_module.MAX_FAILURES_IN_A_ROW
    assert "may not be deleted" in report.postponed


@pytest.mark.parametrize("readable", [True, False])
def test_release_whose_manifest_cannot_be_deleted_keeps_what_it_needs(readable: bool) -> None:
    world = World()
    world.store = store = Failing(now=world.clock)
    old, new = world.put("p", ["old"], ["old"]), world.put("p", ["new"])
    store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    store.refuse = frozenset({keys.manifest("p", old.ref.digest)})
    if not readable:
        world.store.write(keys.layout(old.ref.name, old.ref.digest), b"{}")
        world.clock.forward(2 * DAY)
    world.twice(new)
    assert old.keys <= world.names()
    assert (keys.blob(digest("x")) in world.names()) is not readable  # else it may be needed


def test_stale_uploads_are_abandoned_after_the_grace() -> None:
    world = World()
    world.store = MemoryObjectStore(now=world.clock, multipart_bytes=10)

    class StopError(Exception):
        pass

    def stop(_size_bytes: int) -> None:
        raise StopError

    for key in (keys.blob(digest("x")), "others/" + digest("x")):
        with pytest.raises(StopError):
            world.store.write(key, bytes(100), on_progress=stop)
    world.clock.forward(DAY - MINUTE)
    assert world.collect().abandoned_uploads == 0
    world.clock.forward(MINUTE)
    assert world.collect(dry_run=True).abandoned_uploads == 1
    lease = a_lease(world, "p")
    assert world.collect().abandoned_uploads == 0  # a publisher may continue it
    world.store.delete(lease)
    assert world.collect().abandoned_uploads == 1
    assert [upload.key for upload in world.store.unfinished_uploads("")] == ["others/" + digest("x")]


def test_server_that_lists_no_uploads_is_collected_all_the_same() -> None:
    class Plain(MemoryObjectStore):
        def unfinished_uploads(self, prefix: str) -> Iterator[object]:  # type: ignore[override]
            raise BucketAccessDeniedError("ListMultipartUploads")

    world = World()
    world.store = Plain(now=world.clock)
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    assert world.twice().deleted == {Kind.BLOB: Tally(1, 1)}


def test_collection_that_is_told_to_stop_stops_and_says_what_it_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_module, "BATCH", 3)
    stopping, world = threading.Event(), World()
    for number in range(10):
        world.store.write(keys.blob(digest(f"{number}")), b"x")
    world.clock.forward(2 * DAY)

    def stop(progress: Progress) -> None:
        if progress.phase is WorkPhase.DELETING:
            assert progress.total_count == 10
            stopping.set()

    report = world.twice(stopping=stopping, progress=stop)
    assert report.is_stopped
    assert report.deleted == {Kind.BLOB: Tally(3, 3)}
    assert len(world.names()) == 7
    assert world.collect(stopping=stopping).is_stopped
    assert world.collect().deleted == {Kind.BLOB: Tally(7, 7)}


def test_deletion_lets_publishes_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_module, "BATCH", 1)
    monkeypatch.setattr("blobsync.collection.run.PAUSE_S", 0.0)
    world = World()

    class Slow(MemoryObjectStore):
        def delete_many(self, keys: Iterable[str], before_each: Callable[[], None] | None = None) -> None:
            super().delete_many(keys, before_each)
            world.clock.forward(timedelta(seconds=deletion_module.HOLD_S + 1))

    world.store = Slow(now=world.clock)
    for number in range(3):
        world.store.write(keys.blob(digest(f"{number}")), b"x")
    world.clock.forward(2 * DAY)
    report = world.twice()
    assert report.deleted == {Kind.BLOB: Tally(3, 3)}
    assert sum(key.startswith(keys.COLLECT_LEASES) for key in world.store.writes) == 3


def test_collection_tells_how_far_it_is() -> None:
    world, told = World(), []
    world.put("p", ["a"])
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.twice(progress=told.append)
    assert {item.phase for item in told} == {WorkPhase.LISTING, WorkPhase.READING, WorkPhase.DELETING}
    assert Progress(WorkPhase.READING, 1, 1) in told
    assert Progress(WorkPhase.DELETING, 1, 1) in told


def test_nothing_is_deleted_when_whoever_collects_may_not_delete_any_more() -> None:
    world = World()
    world.store.write(keys.blob(digest("x")), b"x")
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(DAY)

    report = world.collect(may_delete=lambda: False)

    assert report.is_stopped
    assert report.deleted == {}
    assert world.names() == {keys.blob(digest("x"))}, "neither the object nor a lease of ours"
    assert world.collect(may_delete=lambda: True).deleted[Kind.BLOB].count == 1


def test_right_to_delete_is_asked_for_before_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deletion_module, "BATCH", 1)
    world = World()
    for name in ("x", "y", "z"):
        world.store.write(keys.blob(digest(name)), b"x")
    world.clock.forward(2 * DAY)
    world.collect()
    world.clock.forward(DAY)
    answers = iter([True, True, True, False])  # one answer before the lease, then one before each batch

    report = world.collect(may_delete=lambda: next(answers))

    assert report.is_stopped
    assert report.deleted[Kind.BLOB].count == 2
    assert len(world.names()) == 1
