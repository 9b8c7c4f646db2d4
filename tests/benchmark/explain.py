"""Measures how long an explanation takes with 10,000 live runs: `python -m tests.benchmark.explain`.

The leader's store writes the records and the API's reader reads them, as in a cluster, but in SQLite, in this
process. So the figures contain what a scheduler computes for an answer, without requests to ZooKeeper.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from leader import FencingToken
from nimbus.adapters.sqlite.calls import begin_term
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeClusterReader, TreeRegistrations
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.api.explain.run import ExplanationModel
from nimbus.api.routes.explanations import explained_pipeline, explained_run
from nimbus.api.routes.pipelines import known_pipeline
from nimbus.api.services import ApiServices
from nimbus.domain import writes as w
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.ids import PipelineName, RunId, TaskName
from nimbus.domain.pipelines.pipeline import Concurrency, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.lifecycle import begin, queued
from nimbus.domain.runs.run import Run, RunCause
from tests.nimbus.definitions import active, digest_of
from tests.nimbus.engine_bench import NOW, WORKER, Bench
from tests.nimbus.leader_writes import commit
from tests.nimbus.store_reader import leading, services_over

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
    """Each pipeline has 90 running and 10 queued runs. Each running run waits for a full pool."""
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
            asked_at=NOW,
        )
        run = begin(new_run(spec, draft), NOW)
        runs[run.id] = queued(run) if number >= RUNS - 10 * PIPELINES else run
    bench.cluster.change(
        runs=runs,
        pipelines={spec.name: active(spec, schedule_position=NOW) for spec in specs},
        workers={WORKER.id: WORKER},
        settings=ClusterSettings(pools={"db": 0}),
    )
    bench.elect(2)
    return bench


def _stored(bench: Bench, session: SqliteSession) -> TreeClusterReader:
    """Write the records of a leader to a store."""
    world, root = bench.cluster.world, "/nimbus"
    token = begin_term(session, FencingToken(path=f"{root}/epoch", version=0, epoch=2))
    store = TreeLeaderStore(calls_on(session), root, token)
    for _ in store.load():  # creates the parents of the records
        pass
    commit(store, [w.PutSettings(world.settings)])
    for record in world.pipelines.values():
        commit(store, [w.CreatePipeline(record)])
    for runs in _by_hundred(world.runs.values()):
        commit(store, [w.CreateRun(run) for run in runs])
    registrations = TreeRegistrations(calls_on(session), root)
    registrations.publish_scheduler(leading(bench.term.state, bench.clocks))
    for worker in world.workers.values():
        registrations.publish_worker(worker)
    return TreeClusterReader(calls_on(session), root)


def _by_hundred(runs: Iterable[Run]) -> Iterable[list[Run]]:
    """Split the runs into groups of a hundred, because the size of a transaction is limited."""
    rows = list(runs)
    return (rows[start : start + 100] for start in range(0, len(rows), 100))


def measured(ask: Callable[[], ExplanationModel]) -> tuple[list[float], list[float], str]:
    """Processor time and wall time of each answer in ms, and its first reason."""
    spent, took = [], []
    for _ in range(ASKED):
        cpu, wall = time.process_time(), time.perf_counter()
        answer = ask()
        spent.append((time.process_time() - cpu) * 1000)
        took.append((time.perf_counter() - wall) * 1000)
    return spent, took, answer.reasons[0].why


def _services(bench: Bench, session: SqliteSession) -> ApiServices:
    registration = leading(bench.term.state, bench.clocks)
    services = services_over(bench.cluster, bench.clocks, lambda: registration, RUNS // 2)
    return replace(services, reader=_stored(bench, session))


def main() -> int:
    """Print a line for each question, and a separate one for the first read of the list of runs."""
    with TemporaryDirectory() as folder:
        session = SqliteSession(Path(folder) / "state.db")
        session.start()
        try:
            return _measure_all(_services(_stage(), session))
        finally:
            session.close(timedelta(seconds=10))


def _measure_all(services: ApiServices) -> int:
    questions: dict[str, Callable[[], ExplanationModel]] = {
        "task at a pool": lambda: explained_run(services, "r00005", "a"),
        "task with needs": lambda: explained_run(services, "r00005", "b"),
        "queued run": lambda: explained_run(services, f"r{RUNS - 1:05}"),
        "pipeline": lambda: explained_pipeline(services, known_pipeline(services, "p5")),
    }
    begun = time.perf_counter()
    services.reader.run_list()
    print(f"first read of the list of {RUNS:,} runs: {time.perf_counter() - begun:.2f} s")  # noqa: T201
    slow = False
    for what, ask in questions.items():
        spent, took, said = measured(ask)
        slow |= statistics.median(took) > GOAL_MS
        print(  # noqa: T201
            f"{what:16} processor {statistics.median(spent):7.1f} ms, longest {max(spent):7.1f}; "
            f"wall {statistics.median(took):7.1f} ms, longest {max(took):7.1f}: {said[:80]}"
        )
    return int(slow)


if __name__ == "__main__":
    sys.exit(main())
