"""The clusters whose pages are measured, one for each kind of size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import islice

from nimbus.adapters.s3_history import S3History
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.interval_index import IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.runs.tasks import Tasks
from tests.benchmark.datasets import cluster_parts
from tests.benchmark.scale.s3_server import Objects
from tests.nimbus.integration.conftest import T0, World
from tests.nimbus.integration.web_samples import fan, layered, part_done, pipeline, tried

_DAY = timedelta(days=1)
_BATCH = 10_000


def with_pipelines(count: int) -> World:
    """Only a catalog."""
    world = World()
    for number in range(count):
        pipeline(world, f"flow-{number:05d}")
    return world


def with_wide_runs(tasks: int) -> World:
    """A live run whose tasks are between one and a join over all, and one with tasks in layers."""
    world = World()
    for name, specs in (("fan", fan(tasks - 2)), ("layers", layered(tasks))):
        pipeline(world, name, of=specs)
        part_done(world, f"{name}-1", specs, pipeline=PipelineName(name))
    return world


def with_datasets() -> World:
    """10,000 datasets as of `tests.benchmark.datasets`, whose records are full."""
    world = World()
    world.cluster.change(**cluster_parts())
    return world


def with_history(pipelines: int, days: int) -> tuple[World, int]:
    """The cluster after `days` of one run a day of each pipeline, and its index of intervals in bytes."""
    world, indexes = with_pipelines(pipelines), {}
    for number in range(pipelines):
        index = IntervalIndex(begins=T0 - 10_000 * _DAY)
        for day in range(days, 0, -1):
            index = index.with_run(_run_of(number, pipelines, day))
        indexes[PipelineName(f"flow-{number:05d}")] = index
    world.cluster.change(intervals=indexes)
    return world, sum(len(page.name + "-") + len(page.data) for one in indexes.values() for page in one.pages)


def fill(objects: Objects, pipelines: int, days: int) -> None:
    """Write that history, by the writer of history."""
    runs = (_run_of(number, pipelines, day) for day in range(days, 0, -1) for number in range(pipelines))
    for batch in _batches(runs):
        with objects.one_transaction() as store:
            history = S3History(store)
            for run in batch:
                history.store(run)


_SPECS = tuple(layered(5))


def _run_of(number: int, pipelines: int, day: int) -> Run:
    """One in a hundred runs has failed. Runs are created evenly over each day."""
    created, has_failed = T0 - day * _DAY + number * _DAY / pipelines, (number + day) % 100 == 0
    states = [TaskState.SUCCEEDED] * 4 + [TaskState.FAILED if has_failed else TaskState.SUCCEEDED]
    began = (
        (spec, state, created + timedelta(minutes=at))
        for at, (spec, state) in enumerate(zip(_SPECS, states, strict=True))
    )
    run = _TEMPLATE.new_run(
        RunId(f"flow-{number:05d}-{created:%Y%m%dt%H%M%S}z-{number:06x}"),
        pipeline=PipelineName(f"flow-{number:05d}"),
        parameters={"day": f"{created:%Y-%m-%d}", "limit": 100},
        cause=RunCause.SCHEDULE,
        created_at=created,
        started_at=created,
        finished_at=created + timedelta(minutes=6),
        logical_date=created,
        data_interval=DataInterval(start=T0 - (day + 1) * _DAY, end=T0 - day * _DAY),
        state=RunState.FAILED if has_failed else RunState.SUCCEEDED,
        tasks=Tasks(tried(spec, state, at, timedelta(seconds=50)) for spec, state, at in began),
    )
    return replace(run, submitted_by="schedule")


_TEMPLATE = World()


def _batches(runs: Iterable[Run]) -> Iterator[list[Run]]:
    left = iter(runs)
    while batch := list(islice(left, _BATCH)):
        yield batch
