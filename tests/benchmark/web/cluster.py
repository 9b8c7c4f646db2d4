"""Makes the records that the pages show: 1,000 pipelines, 10,000 live runs, and runs of four sizes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from leader import FencingToken, ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeRegistrations
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.domain.ids import RunId
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.writes import CreatePipeline, CreateRun, Write
from nimbus.ports import LeaderStore
from tests.nimbus.integration.conftest import World
from tests.nimbus.integration.web_samples import layered, part_done, pipeline
from tests.nimbus.leader_writes import commit

ROOT = "/bench"
SIZES = (10, 100, 300, 1000)
"""Numbers of tasks of the runs whose pages are measured."""


@dataclass(frozen=True)
class Counts:
    """Number of pipelines and of live runs."""

    pipelines: int = 1_000
    runs: int = 10_000


def session_to(hosts: str) -> ZooKeeperSession:
    """A connected session."""
    session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts))
    session.start(timedelta(seconds=30))
    return session


def world_of(counts: Counts) -> World:
    """The cluster in memory. Equal counts give equal records in each process."""
    world = World()
    for number in range(counts.pipelines):
        pipeline(world, f"flow-{number:04d}")
    for size in SIZES:
        part_done(world, f"tasks-{size}", layered(size), parameters={"day": "2026-03-01"})
    return world


def _small_runs(world: World, counts: Counts) -> Iterable[Run]:
    tasks = Tasks(part_done(world, "pattern", layered(3)).tasks.values())
    for number in range(counts.runs):
        yield world.new_run(
            f"run-{number:05d}",
            pipeline=f"flow-{number % counts.pipelines:04d}",
            tasks=tasks,
            created_at=world.clock.now() - timedelta(seconds=number),
        )


def large_run(world: World, size: int) -> Run:
    """The run with `size` tasks."""
    return world.cluster.world.runs[RunId(f"tasks-{size}")]


def fill(session: ZooKeeperSession, world: World, counts: Counts) -> LeaderStore:
    """Write all records, as a leader does.

    Returns:
        The leader's store, for later changes.
    """
    session.call(session.client.create_async, f"{ROOT}/epoch", b"1", makepath=True)
    store = TreeLeaderStore(calls_on(session), ROOT, FencingToken(path=f"{ROOT}/epoch", version=0, epoch=1))
    for _ in store.load():  # creates the parents of the records
        pass
    writes: list[Write] = [CreatePipeline(record) for record in world.cluster.world.pipelines.values()]
    writes += [CreateRun(run) for run in _small_runs(world, counts)]
    for start in range(0, len(writes), 50):
        commit(store, writes[start : start + 50])
    for size in SIZES:
        commit(store, [CreateRun(large_run(world, size))])
    registrations = TreeRegistrations(calls_on(session), ROOT)
    registrations.publish_scheduler(world.health.me)
    registrations.publish_worker(world.worker)
    return store
