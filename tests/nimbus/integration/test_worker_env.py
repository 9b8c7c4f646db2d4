"""Environment variables that a pipeline sets for its tasks, in real processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from nimbus.domain.pipelines.pipeline import Isolation, TaskKind
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.host import procfs
from nimbus.worker.host.remains import EXECUTOR_VARIABLE
from tests.nimbus.cluster_bench import cluster_bench
from tests.nimbus.integration.test_worker_application import order as order_in_cluster
from tests.nimbus.worker_bench import Bench

SEES = "import os; assert (os.environ['REGION'], 'OTHER' in os.environ) == ('eu', False)"
SEES_NONE = "import os; assert os.environ['REGION'] == 'of the worker'"


@pytest.fixture
def bench(tmp_path: Path, shared_forks: None) -> Iterator[Bench]:
    made = Bench(tmp_path)
    worker = made.worker("w1", settings={"env": {"REGION": "of the worker"}})
    worker.start()
    yield made
    worker.close(timedelta(seconds=10))
    procfs.kill_all(lambda: procfs.with_variable(EXECUTOR_VARIABLE, str(made.root / "w1")), deadline_s=60.0)
    made.close()


@pytest.mark.parametrize("isolation", [Isolation.ISOLATED, Isolation.POOLED])
def test_task_sees_its_variables_and_the_next_one_does_not(bench: Bench, isolation: Isolation) -> None:
    order = bench.order(bench.script("main.py", SEES), isolation=isolation)
    bench.board.assign("w1", replace(order, task=replace(order.task, env={"REGION": "eu"})))
    assert bench.await_end().outcome is Outcome.SUCCEEDED

    script = bench.script("other.py", SEES_NONE)
    bench.board.assign("w1", bench.order(script, attempt="run1.other.1", isolation=isolation))

    assert bench.await_end("run1.other.1").outcome is Outcome.SUCCEEDED


def test_program_sees_its_variables(bench: Bench) -> None:
    args = ("-ec", '[ "$REGION" = eu ]')
    order = bench.order("sh", args=args, task_kind=TaskKind.SHELL)
    bench.board.assign("w1", replace(order, task=replace(order.task, env={"REGION": "eu"})))

    assert bench.await_end().outcome is Outcome.SUCCEEDED


def test_task_in_a_cluster_sees_its_variables(tmp_path: Path) -> None:
    with cluster_bench(tmp_path) as cluster:
        cluster.worker()
        order = order_in_cluster(cluster, SEES)
        order = replace(order, task=replace(order.task, env={"REGION": "eu"}))
        cluster.bench.board.assign("w1", order)

        assert cluster.bench.await_end().outcome is Outcome.SUCCEEDED
