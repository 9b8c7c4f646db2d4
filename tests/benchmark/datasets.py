"""Measures 10,000 datasets: `python -m tests.benchmark.datasets`.

Each has as many versions as its record may keep, and as many gaps. Two more have consumers: one of them has a
consumer for which 250 targets with gaps are due, the other has as many consumers as it may have, all with as
much due as their records hold. The store is a dict, so a turn contains what the leader computes and encodes,
without requests to ZooKeeper.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from nimbus.adapters.store.datasets import CODEC
from nimbus.api.routes.explanations import explained_run
from nimbus.domain.commands import StartRun
from nimbus.domain.data.datasets import MAX_SPANS, MAX_VERSIONS, Dataset
from nimbus.domain.data.publications import Partitioning, Publication, Read, Version, interval_text
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import DataStart, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.starts.due import MAX_CONSUMERS, MAX_EXTENTS, cause_of, consumer_of
from nimbus.engine.events import AttemptChanged
from nimbus.telemetry.logging import configure
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import NOW, WORKER, Bench
from tests.nimbus.store_reader import leading, services_over

DATASETS, PUBLISHERS, ENDS, ASKED = 10_000, 200, 1_000, 20
TURN_MS, ZOOKEEPER_MB, ANSWER_MS = 5.0, 50.0, 200.0
CONSUMER_MS = 0.5
"""Bound of a turn for each consumer that it marks."""
_TASKS = DATASETS // PUBLISHERS
_EVERY = timedelta(hours=2)
_READER = PipelineSpec(
    name=PipelineName("reader"),
    reads=(Read(name="d", dataset=DatasetName("d0-0"), last=timedelta(days=30)),),
    tasks=(TaskSpec(name=TaskName("read"), kind=TaskKind.PYTHON, script="a.py", uses=("d",)),),
)


def _publisher(number: int) -> PipelineSpec:
    tasks = tuple(
        TaskSpec(
            name=TaskName(f"t{place}"),
            kind=TaskKind.PYTHON,
            script="a.py",
            publishes=(_publication(number, place),),
        )
        for place in range(_TASKS)
    )
    return PipelineSpec(name=PipelineName(f"p{number}"), tasks=tasks)


def _publication(number: int, place: int) -> Publication:
    return Publication(dataset=DatasetName(f"d{number}-{place}"), partition=Partitioning.INTERVAL)


def _hour(place: int) -> DataInterval:
    """Every second hour, so that each is a span of its own."""
    start = datetime(2026, 1, 1, tzinfo=UTC) + place * _EVERY
    return DataInterval(start=start, end=start + _EVERY / 2)


def _full() -> Dataset:
    """A dataset with as many versions and spans as its record may have."""
    full = Dataset(name=DatasetName(""), pipeline=PipelineName(""), partition=Partitioning.INTERVAL)
    for place in range(MAX_SPANS + MAX_VERSIONS):
        run = RunId(f"publisher-{place:06}")
        source = AttemptId(run, TaskName("t0"), 1)
        version = Version(
            partition=interval_text(_hour(place)), number=(1 << 32) + place, run=run, task=TaskName("t0"),
            source=source, output=f"{run}/t0/1.manifest-{place:064x}.json", at=NOW + place * _EVERY,
        )  # fmt: skip
        full = full.with_version(version, lambda _: True)
    return full


def cluster_parts() -> dict[str, Any]:
    """Pipelines and datasets, for `DictCluster.change`."""
    full, specs = _full(), [_publisher(number) for number in range(PUBLISHERS)]
    return {
        "pipelines": {spec.name: active(spec, schedule_position=NOW) for spec in [*specs, _READER]},
        "datasets": {
            publication.dataset: replace(full, name=publication.dataset, pipeline=spec.name)
            for spec in specs
            for task in spec.tasks
            for publication in task.publishes
        },
    }


def _stage() -> Bench:
    bench = Bench()
    bench.cluster.change(workers={WORKER.id: replace(WORKER, slots=ENDS)}, **cluster_parts())
    return bench


def _attempts(bench: Bench) -> Iterator[AttemptId]:
    """Start the runs whose tasks end."""
    hour = _hour(MAX_SPANS + MAX_VERSIONS)
    for number in range(ENDS // _TASKS):
        run = RunId(f"r{number}")
        bench.submit(StartRun(pipeline=PipelineName(f"p{number}"), run_id=run, data_interval=hour))
        bench.decide()
        yield from (AttemptId(run, TaskName(f"t{place}"), 1) for place in range(_TASKS))


def _published() -> Iterator[Publication]:
    """What the ended tasks have published."""
    return (_publication(number, place) for number in range(ENDS // _TASKS) for place in range(_TASKS))


def _turn_ms(bench: Bench, attempt: AttemptId) -> float:
    """Processor time from an END until its version is committed, and the next tasks are ordered."""
    bench.end(attempt, Outcome.SUCCEEDED)
    event, began = (AttemptChanged(attempt),), time.process_time()
    bench.term.apply(event)
    bench.term.read_changes(event)
    bench.term.decide()
    return (time.process_time() - began) * 1e3


def _consumer_turn_ms(count: int, due_targets: int, *reads: Read) -> float:
    """Processor time of a turn that publishes what these consumers read."""
    bench, publication = Bench(), _publication(0, 0)
    read = Read(name="d", dataset=publication.dataset, last=timedelta(hours=2), starts=True)
    specs = [
        PipelineSpec(
            name=PipelineName(f"c{number}"),
            schedule=Schedule(cron="@hourly", timezone="UTC"),
            start=DataStart(),
            reads=(read, *reads),
            tasks=(replace(_READER.tasks[0], uses=tuple(one.name for one in (read, *reads))),),
        )
        for number in range(count)
    ]
    dataset = Dataset(name=publication.dataset, pipeline=PipelineName("p0"), partition=Partitioning.INTERVAL)
    due = consumer_of(specs[0], None)
    assert due is not None
    for place in range(due_targets):
        hour = _hour(3 * place)
        version = Version(partition=interval_text(hour), number=(1 << 32) + place, at=NOW)
        dataset = dataset.with_version(version, lambda _: True)
        cause = cause_of(dataset.name, version, NOW)
        target = DataInterval(start=hour.start, end=hour.end + _EVERY / 2)
        due = due.with_change(cause, [target])
    bench.cluster.change(
        pipelines={spec.name: active(spec, schedule_position=NOW) for spec in [_publisher(0), *specs]},
        workers={WORKER.id: replace(WORKER, slots=_TASKS)},
        datasets={dataset.name: dataset},
        due={spec.name: replace(due, pipeline=spec.name) for spec in specs},
    )
    bench.elect(2)
    run = RunId("r0")
    bench.submit(StartRun(pipeline=PipelineName("p0"), run_id=run, data_interval=_hour(3 * due_targets)))
    bench.decide()
    return _turn_ms(bench, AttemptId(run, TaskName("t0"), 1))


def _took_ms(ask: Callable[[], object]) -> float:
    took = []
    for _ in range(ASKED):
        began = time.perf_counter()
        ask()
        took.append((time.perf_counter() - began) * 1e3)
    return statistics.median(took)


def main() -> int:
    """Print a line for each figure, and whether it keeps its bound."""
    configure(stream=sys.stderr)
    bench = _stage()
    assert len(bench.cluster.world.datasets) == DATASETS  # decodes what is not measured
    began = time.process_time()
    bench.elect(2)
    took_over = (time.process_time() - began) * 1e3
    attempts = list(_attempts(bench))
    turns = sorted(_turn_ms(bench, attempt) for attempt in attempts)
    datasets = bench.term.state.catalog.datasets
    newest = [datasets[publication.dataset].newest for publication in _published()]
    assert all(version is not None and version.run.startswith("r") for version in newest)
    stored = sum(len(CODEC.encode(one)) for one in bench.cluster.world.datasets.values()) / 1e6
    bench.submit(StartRun(pipeline=_READER.name, run_id=RunId("late"), data_interval=_hour(1000)))
    bench.decide()
    registration = leading(bench.term.state, bench.clocks)
    services = services_over(bench.cluster, bench.clocks, lambda: registration)
    said = explained_run(services, "late", "read").reasons[0].why
    explained = _took_ms(lambda: explained_run(services, "late", "read"))
    waiting = _consumer_turn_ms(1, 250)
    never = Read(name="never", dataset=DatasetName("never"), starts=True)
    marking = _consumer_turn_ms(MAX_CONSUMERS, MAX_EXTENTS, never)
    figures = [
        ("take-over, processor", took_over, "ms", ANSWER_MS),
        ("turn that publishes, median", turns[len(turns) // 2], "ms", TURN_MS),
        ("turn that publishes, 99 %", turns[len(turns) * 99 // 100], "ms", TURN_MS),
        ("turn, 250 targets wait", waiting, "ms", TURN_MS),
        (f"turn, {MAX_CONSUMERS} full consumers", marking, "ms", CONSUMER_MS * MAX_CONSUMERS),
        (f"records of {DATASETS:,} datasets", stored, "MB", ZOOKEEPER_MB),
        ("explanation of a task that waits", explained, "ms", ANSWER_MS),
    ]
    for what, value, unit, bound in figures:
        kept = "kept" if value <= bound else "MISSED"
        print(f"{what:35} {value:8.2f} {unit}, bound {bound:g}: {kept}")  # noqa: T201
    print(f"it says: {said[:150]}")  # noqa: T201
    return int(any(value > bound for _, value, _, bound in figures))


if __name__ == "__main__":
    sys.exit(main())
