"""The id of an attempt's Spark application: from the driver's report to the link to its history."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nimbus.api.explain.task import ClusterFacts
from nimbus.api.routes.attempts import AttemptReport, ClusterAttempt
from nimbus.api.runs.models import AttemptModel, run_model
from nimbus.api.services import HistoryServers
from nimbus.bootstrap.resources import SystemClock
from nimbus.domain.attempts.cost import Cost
from nimbus.domain.attempts.slots import LONGEST, Claim, End, Slots, application_id
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, SparkPlace, TaskKind, TaskSpec
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.admission import Capacity
from nimbus.records import RUN
from nimbus.scheduler.gateway import ClusterGateway
from nimbus.worker import process_executor
from nimbus.worker.application import reports
from nimbus.worker.driver import spark_figures
from nimbus.worker.host.identity import host_id
from tests.nimbus.worker_bench import Bench, eventually

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ATTEMPT = AttemptId(RunId("run1"), TaskName("task"), 1)
WORKER = WorkerId("w1")
APPLICATION = "app-20260301-0001"
BAD: tuple[object, ...] = ("", "a b", "a/../b", "..", "x" * 65, "ä", "a\n", 7, None, ["app-1"], {"a": 1})
SERVERS = HistoryServers(general="http://history:18080", of_targets={"big": "http://big:18080"})

CAPACITY = Capacity(
    workers=(),
    free=(),
    submitting=(),
    refusals={},
    target_slots={},
    open_at=lambda _target: 0,
    pools={},
    used=lambda _pool: 0,
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.close()


def a_run(*, target: str | None = None) -> Run:
    """A run with one open attempt."""
    place = None if target is None else SparkPlace(target=target)
    spec = TaskSpec(name=ATTEMPT.task, kind=TaskKind.PYSPARK, script="x.py", spark_place=place)
    run = Run(
        id=ATTEMPT.run,
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.CONTINUE,
        tasks=Tasks([TaskRun(spec=spec)]),
    )
    return lifecycle.open_attempt(run, spec.name, worker=WORKER, epoch=1, now=NOW)


def closed(run: Run, application: str | None = APPLICATION, cost: Cost | None = None) -> Run:
    end = End(
        attempt=str(ATTEMPT),
        outcome=Outcome.LOST,
        written_by="runner",
        ended_at=NOW,
        application=application,
        cost=cost,
    )
    return lifecycle.close_attempt(run, ATTEMPT, end, max_infrastructure_failures=9, now=NOW)


def shown(run: Run, progress: Mapping[str, Any] | None = None) -> AttemptModel:
    """The attempt in the API."""
    claim = Claim(attempt=str(ATTEMPT), worker=WORKER, claimed_at=NOW)
    slots = {} if progress is None else {ATTEMPT: Slots(claim=claim, progress=progress)}
    facts = ClusterFacts(now=NOW, leader="s1", capacity=lambda: CAPACITY)
    (task,) = run_model(run, slots, facts, SERVERS).tasks
    return task.attempts[0]


@pytest.mark.parametrize(
    "told", ["local-1767225600000", "application_1410901177871_0001", f"spark-{'0' * 32}", "x" * LONGEST]
)
def test_application_id_is_kept_as_spark_spells_it(told: str) -> None:
    assert application_id(told) == told


@pytest.mark.parametrize("told", BAD)
def test_application_id_of_another_form_is_left_out(told: object) -> None:
    assert application_id(told) is None


def test_run_keeps_the_application_of_an_attempt_that_has_ended() -> None:
    assert closed(a_run()).tasks[ATTEMPT.task].attempts[0].application == APPLICATION


def test_history_keeps_the_application_of_a_run() -> None:
    run = closed(a_run())

    assert RUN.decode(RUN.encode(run), "run1") == run


def test_dead_runner_is_reported_lost_with_its_application(bench: Bench) -> None:
    folder = bench.folder()
    folder.create(bench.order("task.py"))
    bench.board.claim(Claim(attempt=str(ATTEMPT), worker=WORKER, host=host_id(), claimed_at=NOW, nonce="a"))
    folder.progress_file.write_text(json.dumps({"application": APPLICATION}))

    record = process_executor.ending_of_the_dead(folder, bench.board, WORKER, NOW)

    assert record is not None
    assert (record.outcome, record.application) == (Outcome.LOST, APPLICATION)


@pytest.mark.parametrize(
    ("told", "kept"), [(APPLICATION, APPLICATION), *((told, None) for told in BAD)], ids=repr
)
def test_end_of_a_driver_in_a_cluster_is_taken_in_whatever_it_says_of_its_application(
    bench: Bench, told: object, kept: str | None
) -> None:
    order = bench.order("task.py")
    bench.board.claim(Claim(attempt=str(ATTEMPT), claimed_at=NOW, nonce="a"))
    gateway = ClusterGateway(
        board=bench.board, logs=bench.logs, releases=bench, clock=SystemClock(), schedulers=tuple
    )
    said = {"nonce": "a", "status": 0, "came_to_its_end": True, "application": told}

    answer = gateway.end(
        ClusterAttempt(id=ATTEMPT, pipeline=order.pipeline, release=order.release),
        AttemptReport.model_validate_json(json.dumps(said)),
    )

    end = bench.slots().end
    assert end is not None
    assert (answer, end.application) == ("succeeded", kept)


def test_cost_that_a_driver_in_a_cluster_reports_is_kept_as_far_as_it_is_valid(bench: Bench) -> None:
    order = bench.order("task.py")
    bench.board.claim(Claim(attempt=str(ATTEMPT), claimed_at=NOW, nonce="a"))
    gateway = ClusterGateway(
        board=bench.board, logs=bench.logs, releases=bench, clock=SystemClock(), schedulers=tuple
    )
    cost = {"cpu_ms": 7, "spill_bytes": "much", "other": [1]}
    said = {"nonce": "a", "status": 0, "came_to_its_end": True, "cost": cost}

    gateway.end(
        ClusterAttempt(id=ATTEMPT, pipeline=order.pipeline, release=order.release),
        AttemptReport.model_validate_json(json.dumps(said)),
    )

    end = bench.slots().end
    assert end is not None
    assert end.cost == Cost(cpu_ms=7)


def test_attempt_is_shown_with_its_cost() -> None:
    told = shown(closed(a_run(), cost=Cost(cpu_ms=7, task_ms=9))).cost

    assert told is not None
    assert told.model_dump(exclude_none=True) == {"cpu_ms": 7, "task_ms": 9}


@pytest.mark.parametrize("text", [None, "", "[" * 30_000, '["a"]', '{"application": "a"' + " " * 40_000])
def test_bootstrap_reads_no_progress_of_another_form(tmp_path: Path, text: str | None) -> None:
    place = tmp_path / "progress.json"
    if text is not None:
        place.write_text(text)

    assert reports.progress_in(place) == {}


def test_bootstrap_reads_no_progress_from_a_pipe_or_through_a_link(tmp_path: Path) -> None:
    pipe, link, told = (tmp_path / name for name in ("pipe", "link", "told"))
    os.mkfifo(pipe)
    told.write_text('{"application": "app-1"}')
    link.symlink_to(told)

    assert reports.progress_in(told) == {"application": "app-1"}
    assert (reports.progress_in(pipe), reports.progress_in(link)) == ({}, {})


class _Context:
    """The part of a Spark context that gives its names and its progress."""

    applicationId = APPLICATION  # noqa: N815 - Spark's name
    uiWebUrl = None  # noqa: N815

    def statusTracker(self) -> _Context:  # noqa: N802
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802
        return []


def test_application_is_told_as_soon_as_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_figures, "_EVERY_S", 3600.0)
    place = tmp_path / "progress.json"
    thread = spark_figures.ProgressThread(place)
    thread.start()

    monkeypatch.setattr(spark_figures.SparkContext, "_active_spark_context", _Context())

    eventually(place.exists, "what the short application is")
    thread.close()
    assert json.loads(place.read_bytes())["application"] == APPLICATION


def test_attempt_that_has_ended_is_shown_with_its_page_in_the_general_history() -> None:
    told = shown(closed(a_run()))

    assert told.application == APPLICATION
    assert told.history_url == f"http://history:18080/history/{APPLICATION}/"


@pytest.mark.parametrize(("target", "server"), [("big", "http://big:18080"), ("two", "http://history:18080")])
def test_history_of_the_target_wins_over_the_general_one(target: str, server: str) -> None:
    assert shown(closed(a_run(target=target))).history_url == f"{server}/history/{APPLICATION}/"


def test_attempt_without_an_application_has_no_page_in_the_history() -> None:
    told = shown(closed(a_run(), None))

    assert (told.application, told.history_url) == (None, None)


def test_application_without_a_history_server_is_shown_without_a_page() -> None:
    assert HistoryServers().page(None, APPLICATION) is None


@pytest.mark.parametrize(("said", "told"), [(APPLICATION, APPLICATION), ("no id", None)])
def test_attempt_that_runs_is_shown_with_its_application_and_its_living_page(
    said: str, told: str | None
) -> None:
    progress = {"application": said, "ui": "http://driver:4040"}

    attempt = shown(a_run(), progress)

    assert (attempt.application, attempt.history_url) == (told, None)
    assert attempt.progress == progress


@pytest.mark.parametrize(
    ("told", "outcome", "result"),
    [
        (None, "succeeded", None),
        ('{"rows": 3}', "succeeded", {"rows": 3}),
        ("[3]", "failed", None),
        ('{"x": "' + "a" * 4096, "failed", None),
    ],
)
def test_result_of_a_driver_in_a_cluster_is_committed_with_its_success_or_not_at_all(
    bench: Bench, told: str | None, outcome: str, result: object
) -> None:
    order = bench.order("task.py")
    bench.board.claim(Claim(attempt=str(ATTEMPT), claimed_at=NOW, nonce="a"))
    gateway = ClusterGateway(
        board=bench.board, logs=bench.logs, releases=bench, clock=SystemClock(), schedulers=tuple
    )
    said = {"nonce": "a", "status": 0, "came_to_its_end": True, "result": told}

    answer = gateway.end(
        ClusterAttempt(id=ATTEMPT, pipeline=order.pipeline, release=order.release),
        AttemptReport.model_validate_json(json.dumps(said)),
    )

    end = bench.slots().end
    assert end is not None
    assert (answer, end.result) == (outcome, result)
