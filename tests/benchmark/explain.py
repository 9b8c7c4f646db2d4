"""How long an explanation takes beside 10,000 live runs: `python -m tests.benchmark.explain`.

Over the store in memory: what the rules and the answer cost, without the reads of ZooKeeper.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from nimbus.api.models_explanations import ExplanationModel
from nimbus.api.routes_explanations import explained_pipeline, explained_run
from nimbus.domain.concurrency import Concurrency
from nimbus.domain.drafts import Draft, new_run
from nimbus.domain.ids import PipelineName, RunId, TaskName
from nimbus.domain.lifecycle import begin, queued
from nimbus.domain.pipeline import PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.run import RunCause
from nimbus.domain.settings import ClusterSettings
from tests.definitions import active, digest_of
from tests.engine_bench import NOW, WORKER, Bench
from tests.store_reader import leading, services_over

RUNS, PIPELINES, ASKED, GOAL_MS = 10_000, 100, 20, 200.0


def _spec(number: int) -> PipelineSpec:
    return PipelineSpec(
        name=PipelineName(f"p{number}"),
        schedule=Schedule(cron="0 6 * * *", timezone="UTC"),
        concurrency=Concurrency(limit=RUNS // PIPELINES - 10),
        tasks=(
            TaskSpec(name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py", pools={"db": 1}),
            TaskSpec(name=TaskName("b"), kind=TaskKind.PYTHON, script="b.py", needs=(TaskName("a"),)),
        ),
    )


def _stage() -> Bench:
    """Each pipeline has 90 runs under way and 10 queued; each run waits for a pool that has no room."""
    bench, specs = Bench(), [_spec(number) for number in range(PIPELINES)]
    runs = {}
    for number in range(RUNS):
        spec = specs[number % PIPELINES]
        draft = Draft(
            id=RunId(f"r{number:05}"),
            pipeline=spec.name,
            release=digest_of(spec),
            parameters={},
            logical_date=NOW,
            cause=RunCause.MANUAL,
            layout=2,
            asked_at=NOW,
        )
        run = begin(new_run(spec, draft), NOW)
        runs[run.id] = queued(run) if number >= RUNS - 10 * PIPELINES else run
    bench.cluster.change(
        schema=2,
        runs=runs,
        pipelines={spec.name: active(spec, schedule_position=NOW) for spec in specs},
        workers={WORKER.id: replace(WORKER, newest_schema=2)},
        settings=ClusterSettings(pools={"db": 0}),
    )
    bench.elect(2)
    return bench


def measured(ask: Callable[[], ExplanationModel]) -> tuple[float, float, str]:
    """Median and longest processor time in ms, and what was said first. Other work on the host counts not."""
    took = []
    for _ in range(ASKED):
        start = time.thread_time()
        answer = ask()
        took.append((time.thread_time() - start) * 1000)
    return statistics.median(took), max(took), answer.reasons[0].why


def main() -> int:
    """Print a line for each question."""
    bench = _stage()
    registration = leading(bench.reign.state, bench.clocks)
    services = services_over(bench.cluster, bench.clocks, lambda: registration, RUNS // 2)
    questions: dict[str, Callable[[], ExplanationModel]] = {
        "task at a pool": lambda: explained_run(services, "r00005", "a"),
        "task with needs": lambda: explained_run(services, "r00005", "b"),
        "queued run": lambda: explained_run(services, f"r{RUNS - 1:05}"),
        "pipeline": lambda: explained_pipeline(services, "p5"),
    }
    slow = False
    for what, ask in questions.items():
        median, longest, said = measured(ask)
        slow |= longest > GOAL_MS
        print(f"{what:16} median {median:6.1f} ms, longest {longest:6.1f} ms: {said[:90]}")  # noqa: T201
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
