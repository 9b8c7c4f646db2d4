"""One collection of garbage: kept objects, refusals to begin, and its end with the leadership."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from blobsync import (
    BucketUnavailableError,
    LocalStore,
    RetryPolicy,
    Syncer,
    collect,
    collect_garbage,
    fetch_manifest,
    list_releases,
    publish,
)
from blobsync.bucket import keys
from blobsync.release.manifest import ReleaseRef
from blobsync.testing.memory import MemoryObjectStore
from nimbus.adapters.store.cluster import TreeWholeState
from nimbus.config.sections import ArtifactsSection
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.pipeline import DEFINITION_FILE, PipelineSpec
from nimbus.domain.runs.run import Run
from nimbus.records import UnreadableRecordError
from nimbus.scheduler.garbage import BucketGarbage, LocalGarbage
from nimbus.scheduler.releases import LocalReleases
from nimbus.telemetry.daemon import GarbageMetrics
from tests.blobsync.collection_samples import DAY, QUICK, START, Clock
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import ROOT, DictCluster

P = PipelineName("p")
MINUTE = timedelta(minutes=1)
DEFINITION = "schema: 1\nname: p\ntasks:\n  a: {type: python, script: a.py}\n"
ARTIFACTS = ArtifactsSection(
    gc=True, gc_keep_age=DAY, gc_keep_newest=0, gc_max_share=1.0, local_gc_grace=timedelta(0)
)


class World:
    """A bucket with an old and a new release of one pipeline, and a catalog that names the new one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock, self.cluster, self.registry = Clock(), DictCluster(), CollectorRegistry()
        self.whole = TreeWholeState(self.cluster.calls(), ROOT)
        self.store = MemoryObjectStore(now=self.clock)
        self.leads = True
        self.asked = 0
        self.old, self.new = self.publish("old"), self.publish("new")
        self.know(self.new)
        self.metrics = GarbageMetrics(self.registry)
        self.garbage = BucketGarbage(
            store=self.store,
            state=self.whole,
            leads=self._leads,
            artifacts=ARTIFACTS,
            retry=QUICK,
            metrics=self.metrics,
            collect=partial(collect_garbage, clock=self.clock, clock_s=lambda: self.clock.boot_s),
        )

    def _leads(self) -> bool:
        self.asked += 1
        return self.leads

    def publish(self, text: str) -> ReleaseRef:
        (self.folder / DEFINITION_FILE).write_text(f"# {text}\n{DEFINITION}")
        made = publish(self.store, name="p", files=collect(self.folder, include=[DEFINITION_FILE]))
        self.clock.forward(MINUTE)
        return ReleaseRef("p", made.digest)

    def know(self, ref: ReleaseRef) -> None:
        """Make it the active release in the catalog."""
        spec = PipelineSpec(name=P)
        digest = ReleaseDigest(ref.digest)
        self.cluster.put(active(spec, published=digest, release=digest, updated_at=START))

    def collect(self) -> None:
        self.garbage.collect(threading.Event())

    def condemn(self) -> None:
        """Run the first collection, and advance the time until the next may delete."""
        self.clock.forward(2 * DAY)
        self.collect()
        self.clock.forward(DAY)

    def visible(self) -> set[ReleaseRef]:
        return {ReleaseRef("p", digest) for digest in list_releases(self.store, "p")}

    def count(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def world(tmp_path: Path) -> World:
    folder = tmp_path / "files"
    folder.mkdir()
    return World(folder)


def test_leader_deletes_the_old_release_and_keeps_the_one_in_use(world: World) -> None:
    world.condemn()
    assert world.visible() == {world.old, world.new}, "the first collection only condemns"

    world.collect()

    assert world.visible() == {world.new}
    assert fetch_manifest(world.store, "p", world.new.digest).ref == world.new
    assert world.count("nimbus_gc_runs_total", where="bucket", outcome="done") == 2
    assert world.count("nimbus_gc_deleted_objects_total", where="bucket") >= 3
    assert world.count("nimbus_gc_deleted_bytes_total", where="bucket") > 0
    assert world.count("nimbus_gc_last_success_timestamp_seconds", where="bucket") > 0


def test_who_does_not_lead_does_not_even_look(world: World) -> None:
    world.condemn()
    world.leads = False
    world.store.unavailable = True  # any call fails, and is counted
    world.cluster.available = False

    world.collect()

    assert world.count("nimbus_gc_runs_total", where="bucket", outcome="failed") == 0
    assert world.count("nimbus_gc_runs_total", where="bucket", outcome="done") == 1


def test_nothing_is_deleted_once_leadership_is_lost(world: World) -> None:
    """For each check that may find the leadership over, nothing is deleted after it."""
    world.condemn()
    world.asked = 0
    world.collect()
    questions = world.asked
    assert questions >= 4, "asked at least at the beginning and before the first deletion"
    for lost_at in range(1, questions):
        other = World(world.folder)
        other.condemn()
        other.asked = 0
        deletions_after: list[str] = []
        watch_deletions(other, lost_at, deletions_after)

        other.collect()

        assert other.asked >= lost_at
        assert deletions_after == []
        assert not list(other.store.list(keys.COLLECT_LEASES)), "publishes are not held up"


def watch_deletions(world: World, lost_at: int, seen: list[str]) -> None:
    delete_many = world.store.delete_many

    def leads() -> bool:
        world.asked += 1
        world.leads = world.leads and world.asked < lost_at
        return world.leads

    def watched(names: list[str], before_each: Callable[[], None]) -> None:
        before_each()
        if not world.leads:
            seen.extend(names)
        delete_many(names)

    world.garbage._leads = leads
    world.store.delete_many = watched  # type: ignore[method-assign,assignment]


def test_nothing_is_deleted_when_leadership_is_lost_while_the_state_is_read(world: World) -> None:
    """For each read of the state at which leadership may be lost, nothing is deleted after it."""

    def deletions_after(lost_at: int) -> tuple[int, list[str]]:
        """Number of reads of the state, and the deletions after the chosen read."""
        other, deleted = World(world.folder), list[str]()
        other.condemn()
        all_runs, delete_many, reads = other.whole.all_runs, other.store.delete_many, 0

        def read() -> tuple[Run, ...]:
            nonlocal reads
            reads += 1
            other.leads = other.leads and reads != lost_at
            return all_runs()

        def delete(names: list[str], before_each: Callable[[], None]) -> None:
            before_each()
            deleted.extend(names if not other.leads else ())
            delete_many(names)

        other.whole.all_runs = read  # type: ignore[method-assign]
        other.store.delete_many = delete  # type: ignore[method-assign,assignment]
        other.collect()
        return reads, deleted

    reads, _ = deletions_after(0)
    assert reads >= 3, "at the beginning, and before each request that deletes"
    assert [deletions_after(lost_at)[1] for lost_at in range(1, reads + 1)] == [[]] * reads


def test_release_that_comes_into_use_during_a_collection_is_not_deleted(world: World) -> None:
    world.condemn()
    lists = world.store.list

    def activated_meanwhile(*asked: str) -> Iterator[object]:
        world.know(world.old)
        return lists(*asked)

    world.store.list = activated_meanwhile  # type: ignore[method-assign,assignment]
    world.collect()

    assert world.visible() == {world.old, world.new}
    assert world.count("nimbus_gc_runs_total", where="bucket", outcome="stopped") == 1


def unreadable() -> tuple[Run, ...]:
    raise UnreadableRecordError("/nimbus/runs/r", "schema 9 is newer")


@pytest.mark.parametrize(
    ("spoil", "outcome"),
    [
        (lambda world: setattr(world.cluster, "available", False), "failed"),
        (lambda world: setattr(world.whole, "all_runs", unreadable), "failed"),
        (lambda world: world.cluster.set("pipelines", P, None), "refused"),
        (lambda world: world.know(ReleaseRef("p", "0" * 64)), "refused"),
        (lambda world: setattr(world.store, "unavailable", True), "failed"),
    ],
    ids=[
        "catalog-unread",
        "run-of-a-newer-version",
        "catalog-empty",
        "release-in-use-lost",
        "bucket-unreachable",
    ],
)
def test_nothing_is_collected_when_too_little_is_known(
    world: World, spoil: Callable[[World], None], outcome: str
) -> None:
    world.condemn()
    before = {info.key for info in world.store.list("")}
    spoil(world)

    world.collect()

    world.store.unavailable = False
    assert before <= {info.key for info in world.store.list("")}
    assert world.count("nimbus_gc_runs_total", where="bucket", outcome=outcome) == 1


def test_zookeeper_that_falls_silent_during_a_collection_ends_it(world: World) -> None:
    world.condemn()
    lists = world.store.list

    def silent_meanwhile(*asked: str) -> Iterator[object]:
        world.cluster.available = False
        return lists(*asked)

    world.store.list = silent_meanwhile  # type: ignore[method-assign,assignment]
    world.collect()

    assert world.visible() == {world.old, world.new}


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore(tmp_path / "store") as store:
        yield store


def on_disk(world: World, local: LocalStore) -> LocalGarbage:
    """Collections of a daemon that has fetched both releases, and does not restart."""
    syncer = Syncer(world.store, local, retry=RetryPolicy())
    for ref in (world.old, world.new):
        with LocalReleases(syncer).pinned(PipelineName(ref.name), ReleaseDigest(ref.digest), MINUTE):
            pass  # fetched, used, and no longer in use
    syncer.close(MINUTE)
    return LocalGarbage(store=local, state=world.whole, artifacts=ARTIFACTS, metrics=world.metrics)


def test_disk_keeps_the_release_in_use_and_loses_the_old_one(world: World, local: LocalStore) -> None:
    garbage = on_disk(world, local)
    garbage.collect(threading.Event())
    assert set(local.releases()) == {world.old, world.new}, "the first collection only marks"

    garbage.collect(threading.Event())

    assert set(local.releases()) == {world.new}
    assert world.count("nimbus_gc_runs_total", where="disk", outcome="done") == 2
    assert world.count("nimbus_gc_deleted_bytes_total", where="disk") > 0


@pytest.mark.parametrize("empty", [True, False])
def test_disk_loses_nothing_while_the_catalog_is_empty_or_unread(
    world: World, local: LocalStore, empty: bool
) -> None:
    garbage = on_disk(world, local)
    if empty:
        world.cluster.set("pipelines", P, None)
    else:
        world.cluster.available = False

    for _ in range(3):
        garbage.collect(threading.Event())

    assert set(local.releases()) == {world.old, world.new}
    outcome = "refused" if empty else "failed"
    assert world.count("nimbus_gc_runs_total", where="disk", outcome=outcome) == 3


def test_defect_is_not_hidden(world: World) -> None:
    def broken(*_args: object, **_named: object) -> object:
        raise ValueError("a defect")

    world.garbage._collect = broken  # type: ignore[assignment]
    with pytest.raises(ValueError, match="a defect"):
        world.collect()
    assert world.count("nimbus_gc_runs_total", where="bucket", outcome="failed") == 1


def test_error_of_the_store_is_an_outcome_not_an_exception(world: World) -> None:
    def away(*_args: object, **_named: object) -> object:
        raise BucketUnavailableError("away")

    world.garbage._collect = away  # type: ignore[assignment]
    world.collect()
    assert world.count("nimbus_gc_runs_total", where="bucket", outcome="failed") == 1
