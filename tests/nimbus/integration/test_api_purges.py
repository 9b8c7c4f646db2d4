"""Purges: the API and the command line, on a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from click.testing import Result

from nimbus.adapters.s3_purges import S3Purges
from nimbus.domain.commands import PurgeRuns
from nimbus.domain.data.publications import Read, Version
from nimbus.domain.ids import AttemptId, DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.runs.purge import Purged, Said
from nimbus.domain.runs.run import Run, RunPart, RunState
from nimbus.domain.runs.task_run import Reused
from tests.nimbus.definitions import active

Invoke = Callable[..., Result]
SAID = Said(at=datetime(2026, 3, 1, tzinfo=UTC), by="retention", why="retention.logs is 30d")
P = PipelineName("sums")


def archived(world: Any, run_id: str) -> Run:
    run: Run = world.succeeded(run_id)
    world.history.store(run)
    world.cluster.set("runs", run.id, None)
    return run


def gone(world: Any, run: Run, *parts: RunPart) -> None:
    note = Purged(run=run.id, pipeline=run.pipeline, created_at=run.created_at)
    S3Purges(world.releases.bucket).note(note.with_parts(parts, SAID))


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (
            ("r1", "--reason", "mistake"),
            PurgeRuns(parts=(RunPart.HISTORY,), reason="mistake", run_id=RunId("r1")),
        ),
        (
            (
                *("--pipeline", "sums", "--before", "2026-01-01", "--state", "failed"),
                *("--outputs", "--logs", "--reason", "space"),
            ),
            PurgeRuns(
                parts=(RunPart.LOGS, RunPart.OUTPUTS),
                reason="space",
                pipeline=P,
                before=datetime(2026, 1, 1, tzinfo=UTC),
                states=(RunState.FAILED,),
            ),
        ),
    ],
)
def test_command_line_asks_for_the_purge_that_it_names(
    world: Any, nimbus: Invoke, words: tuple[str, ...], command: PurgeRuns
) -> None:
    done = nimbus("run", "purge", *words, "-o", "json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["status"] == "accepted"

    world.deciding, world.health.leading = False, None
    assert nimbus("run", "purge", *words).exit_code == 6
    (queued,) = world.reader.commands()
    assert queued.command == command


@pytest.mark.parametrize(
    "words",
    [
        ("r1",),
        ("r1", "--pipeline", "sums", "--before", "2026-01-01", "--reason", "x"),
        ("--pipeline", "sums", "--reason", "x"),
        ("r1", "--before", "2026-01-01", "--reason", "x"),
        ("--reason", "x"),
    ],
)
def test_command_line_refuses_a_purge_that_is_not_clear(nimbus: Invoke, words: tuple[str, ...]) -> None:
    assert nimbus("run", "purge", *words).exit_code == 2


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"reason": "x"}, "bad_purge"),
        ({"run_id": "r1"}, "invalid_request"),
        ({"run_id": "r1", "pipeline": "sums", "before": "2026-01-01", "reason": "x"}, "bad_purge"),
        ({"pipeline": "sums", "reason": "x"}, "bad_purge"),
        ({"run_id": "r1", "reason": "x", "parts": []}, "invalid_request"),
        ({"run_id": "r1", "reason": "x", "parts": ["records"]}, "invalid_request"),
    ],
)
def test_purge_that_is_not_clear_is_refused(api: httpx.Client, body: dict[str, Any], code: str) -> None:
    assert api.post("/purges", json=body).json()["code"] == code


def test_plan_says_what_would_go_and_why_the_rest_is_kept(
    world: Any, api: httpx.Client, nimbus: Invoke
) -> None:
    first, second = archived(world, "r1"), archived(world, "r2")
    task = next(iter(first.tasks.values()))
    reused = Reused(run=RunId("r1"), attempt=task.attempts[-1])
    tasks = second.tasks.replaced([replace(task, attempts=(), reused=reused)])
    world.history.store(replace(second, tasks=tasks))
    gone(world, archived(world, "r3"), RunPart.LOGS)
    world.cluster.put(archived(world, "r4"))
    before = (first.finished_at + timedelta(days=1)).isoformat()

    answer = api.post("/purge-plan", json={"pipeline": "sums", "before": before}).json()

    rows = {row["run_id"]: (row["parts"], row["kept"]) for row in answer["runs"]}
    assert answer["complete"] is True
    assert rows == {
        "r1": ([], "a later run reuses or reads what its tasks did"),
        "r2": (["logs", "outputs", "history"], None),
        "r3": (["outputs", "history"], None),
        "r4": ([], "it, or the run that started it, has not ended, or only lately"),
    }
    words = ("run", "purge", "--pipeline", "sums", "--before", before, "--dry-run")
    assert "outputs, history" in nimbus(*words).stdout
    assert json.loads(nimbus(*words, "-o", "json").stdout) == answer
    assert world.reader.commands() == ()


@pytest.mark.parametrize("takes_rerun", [True, False])
def test_plan_takes_a_run_that_only_runs_before_it_in_the_plan_reuse(
    world: Any, api: httpx.Client, takes_rerun: bool
) -> None:
    first, second = archived(world, "r1"), archived(world, "r2")
    task = next(iter(first.tasks.values()))
    tasks = second.tasks.replaced(
        [replace(task, attempts=(), reused=Reused(run=first.id, attempt=task.attempts[-1]))]
    )
    later = first.created_at + timedelta(hours=1)
    state = RunState.SUCCEEDED if takes_rerun else RunState.FAILED
    world.history.store(replace(second, tasks=tasks, created_at=later, state=state))
    before = (first.finished_at + timedelta(days=1)).isoformat()

    body = {"pipeline": "sums", "before": before, "states": ["succeeded"]}
    rows = {row["run_id"]: row["kept"] for row in api.post("/purge-plan", json=body).json()["runs"]}

    kept = {"r1": "a later run reuses or reads what its tasks did"}
    assert rows == ({"r1": None, "r2": None} if takes_rerun else kept)


def test_plan_reads_of_live_runs_those_alone_that_may_reuse_another(
    world: Any, api: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = archived(world, "r1")
    task = next(iter(first.tasks.values()))
    rerun = world.new_run("r3")
    reused = Reused(run=first.id, attempt=task.attempts[-1])
    tasks = rerun.tasks.replaced([replace(rerun.tasks[task.spec.name], reused=reused)])
    world.cluster.put(world.new_run("r2"), replace(rerun, tasks=tasks, selected="failed"))
    read, runs = list[str](), world.reader.runs
    monkeypatch.setattr(world.reader, "runs", lambda ids: read.extend(ids) or runs(ids))

    (row,) = api.post("/purge-plan", json={"run_id": "r1"}).json()["runs"]

    assert row["kept"] == "a later run reuses or reads what its tasks did"
    assert read == ["r3"]


def test_plan_keeps_what_a_live_run_has_pinned(world: Any, api: httpx.Client) -> None:
    first = archived(world, "r1")
    source = AttemptId(first.id, TaskName("load"), 1)
    pinned = Version(
        partition="", number=1, run=first.id, task=source.task, source=source, output="o", at=first.created_at
    )
    read = Read(name="sums", dataset=DatasetName("sums"))
    world.cluster.put(active(replace(world.spec, reads=(read,))))
    world.cluster.put(replace(world.new_run("r2"), reads=(read,), pins={"sums": (pinned,)}))

    (row,) = api.post("/purge-plan", json={"run_id": "r1"}).json()["runs"]

    assert (row["parts"], row["kept"]) == ([], "a later run reuses or reads what its tasks did")


def test_run_and_its_logs_say_that_the_logs_are_purged(world: Any, api: httpx.Client, nimbus: Invoke) -> None:
    run = archived(world, "r1")
    world.logs.append(AttemptId(run.id, TaskName("load"), 1), 0, b"half")
    gone(world, run, RunPart.LOGS)

    (part,) = api.get("/runs/r1").json()["purged"]
    refused = api.get("/runs/r1/tasks/load/log")

    assert (part["part"], part["by"], part["why"]) == ("logs", "retention", "retention.logs is 30d")
    assert "logs on 2026-03-01 by retention (retention.logs is 30d)" in nimbus("run", "show", "r1").stdout
    assert (refused.status_code, refused.json()["code"]) == (404, "log_purged")
    assert "purged on 2026-03-01 by retention (retention.logs is 30d)" in refused.json()["detail"]
    assert nimbus("run", "logs", "r1", "load").exit_code == 3


def test_run_whose_history_is_purged_says_so_and_its_id_is_not_used_again(
    world: Any, api: httpx.Client
) -> None:
    run: Run = world.succeeded("r1")
    world.cluster.set("runs", run.id, None)
    gone(world, run, *RunPart)

    shown = api.get("/runs/r1")
    started = api.post("/runs", json={"pipeline": "sums", "run_id": "r1"})

    assert (shown.status_code, shown.json()["code"]) == (404, "unknown_run")
    assert "purged on 2026-03-01 by retention" in shown.json()["detail"]
    assert (started.status_code, started.json()["code"]) == (409, "run_exists")
