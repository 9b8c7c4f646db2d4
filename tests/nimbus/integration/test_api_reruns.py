"""Runs of selected tasks, reruns and marks: over the API, and by the command line."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from click.testing import CliRunner, Result

from nimbus.cli.main import cli
from nimbus.client import api as client_module
from nimbus.domain.commands import MarkTask, StartRun, StopRun
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import TaskState

R = RunId("r1")
EXTRACT, LOAD = TaskName("extract"), TaskName("load")


@pytest.fixture
def ended(world: Any) -> Any:
    """The run r1, with parameters, which was stopped."""
    run = world.new_run("r1", parameters={"months": [1, 2]})
    run = lifecycle.stop(run, verdict=RunState.STOPPED, reason="late", now=run.created_at)
    world.cluster.put(run)
    return run


def only_command(world: Any) -> Any:
    (queued,) = world.reader.commands()
    return queued.command


def nimbus(url: str, *words: str) -> Result:
    return CliRunner().invoke(cli, list(words), env={"NIMBUS_SERVER": url})


def again(ended: Any, new: RunId, selection: Selection, *, latest: bool = False) -> StartRun:
    return StartRun(
        pipeline=ended.pipeline,
        run_id=new,
        parameters=ended.parameters,
        logical_date=ended.logical_date,
        priority=ended.priority,
        release=None if latest else ended.release,
        selection=selection,
    )


def test_rerun_asks_for_a_run_with_dates_parameters_and_release_of_the_earlier_one(
    world: Any, api: httpx.Client, ended: Any
) -> None:
    world.deciding = False

    answer = api.post("/runs/r1/rerun", json={"scope": "failed", "run_id": "r2"})

    assert (answer.status_code, answer.json()["run_id"]) == (202, "r2")
    selection = Selection(scope=Scope.FAILED, reuse=R, is_rerun=True, keeps_releases=True)
    assert only_command(world) == again(ended, RunId("r2"), selection)


def test_rerun_by_the_command_line_hands_every_option_on(world: Any, api_url: str, ended: Any) -> None:
    world.deciding = False
    world.health.leading = None  # so that no request waits for a decision

    words = ("--from", "load", "--release", "latest", "--mark", "extract=succeeded", "--reason", "by hand")
    done = nimbus(api_url, "run", "rerun", "r1", *words, "--new-run-id", "r2")

    assert done.stdout == "r2\n"
    marks = {EXTRACT: TaskState.SUCCEEDED}
    selection = Selection(
        scope=Scope.FROM, tasks=(LOAD,), reuse=R, is_rerun=True, marks=marks, reason="by hand"
    )
    assert only_command(world) == again(ended, RunId("r2"), selection, latest=True)


def test_rerun_of_a_live_run_says_what_it_waits_for(world: Any, api: httpx.Client, api_url: str) -> None:
    world.deciding = False
    world.cluster.put(world.new_run("r1"))

    done = nimbus(api_url, "run", "rerun", "r1", "--all", "--new-run-id", "r2")

    assert (done.exit_code, done.stdout) == (0, "r2\n")
    assert "it starts when run r1 has ended" in done.stderr
    shown = api.get("/runs/r2").json()
    assert (shown["state"], shown["reason"]) == ("pending", "waits for the end of run r1")


def test_rerun_that_waits_can_be_stopped(world: Any, api_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world.deciding = False
    world.health.leading = None
    monkeypatch.setattr(client_module, "_WAIT_S", 0)
    world.cluster.put(world.new_run("r1"))
    nimbus(api_url, "run", "rerun", "r1", "--all", "--new-run-id", "r2")

    done = nimbus(api_url, "run", "stop", "r2", "--reason", "not needed")

    assert "queued as" in done.stderr
    commands = [queued.command for queued in world.reader.commands()]
    assert commands[-1] == StopRun(run_id=RunId("r2"), reason="not needed")


def test_start_of_selected_tasks_hands_them_on(
    world: Any, api: httpx.Client, api_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_WAIT_S", 0)
    world.deciding = False
    world.health.leading = None

    nimbus(api_url, "run", "start", "sums", "--from", "load", "--reuse", "r1")

    assert only_command(world).selection == Selection(scope=Scope.FROM, tasks=(LOAD,), reuse=R)


def test_mark_is_handed_on_with_its_reason(world: Any, api_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_WAIT_S", 0)
    world.deciding = False
    world.health.leading = None
    world.cluster.put(world.new_run("r1"))

    nimbus(api_url, "task", "mark", "r1", "load", "skipped", "--reason", "not today")

    assert only_command(world) == MarkTask(run_id=R, task=LOAD, state="skipped", reason="not today")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("run", "rerun", "r1"), 2, "choose what to run"),
        (("run", "rerun", "r1", "--all", "--from", "load"), 2, "exclude each other"),
        (("run", "rerun", "r1", "--all", "--mark", "load=done"), 2, "TASK=succeeded"),
        (("run", "rerun", "r1", "--all", "--mark", "load=skipped"), 4, "marks need a reason"),
        (("run", "rerun", "absent", "--all"), 3, "neither live nor in history"),
        (("run", "start", "sums", "--reuse", "r1"), 2, "--reuse needs"),
        (("task", "mark", "r1", "load", "failed", "--reason", "x"), 2, "failed"),
        (("task", "mark", "r1", "load", "skipped", "--reason", "x"), 4, "nothing to mark"),
    ],
)
def test_what_cannot_be_done_is_said(
    api_url: str, ended: Any, words: tuple[str, ...], code: int, said: str
) -> None:
    assert ended.id == R
    done = nimbus(api_url, *words)

    assert done.exit_code == code
    assert said in done.stderr
