"""Child runs in the API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nimbus.api.explain.queue import QueueView
from nimbus.api.explain.task import ClusterFacts, why
from nimbus.api.runs.models import children_model, run_summary
from nimbus.api.runs.replay import child_models
from nimbus.domain.commands import StartRun
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.pipelines.pipeline import Concurrency
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.starts.admission import Capacity
from tests.nimbus.children_stage import LOAD, NOW, PARENT, Stage, parent, starting

FAN = TaskName("fan")
THREE = starting(for_each={"region": ("eu", "us", "asia")})


def _no_capacity() -> Capacity:
    raise AssertionError("a task that starts child runs asks for no worker")


def explained(stage: Stage, leader: str | None = "s1") -> str | None:
    """The API's explanation why the run's task waits."""
    run = stage.run()

    def queue(_: Run) -> QueueView:
        return QueueView(live=tuple(stage.state.runs.live.values()), limit=1, max_running=None)

    facts = ClusterFacts(
        now=NOW,
        leader=leader,
        capacity=_no_capacity,
        queue=queue,
        run=stage.state.runs.live.get,
    )
    return why(run, run.tasks[FAN], None, facts)


def test_task_names_the_child_run_that_it_waits_for() -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_parallel=2)))
    stage.start()
    first = stage.children()[0].id

    assert explained(stage) == (
        f"0 of 3 child runs have succeeded; waits for child run {first}, which is running and 1 more; "
        "1 more are started as others end: max_parallel is 2"
    )


def test_queued_child_run_is_explained_from_its_parent() -> None:
    stage = Stage(replace(LOAD, concurrency=Concurrency(limit=1)), parent(starting()))
    stage.start("other", LOAD.name)
    stage.start()
    (child,) = stage.children()

    assert explained(stage) == (
        f"0 of 1 child runs have succeeded; waits for child run {child.id}, which is queued: "
        "1st of 1 in the queue, waits for run other to end, of pipeline load: concurrency.limit is 1"
    )


def test_child_run_that_has_ended_is_taken_in_by_a_leader() -> None:
    stage = Stage(LOAD, parent(starting()))
    stage.start()
    (child,) = stage.children()
    stage.state.runs.put(replace(child, state=RunState.SUCCEEDED, finished_at=NOW), stage.instant())

    assert explained(stage, leader=None) == (
        f"0 of 1 child runs have succeeded; child run {child.id} has ended, and the leader has not "
        "applied that yet; no scheduler leads at the moment"
    )


def test_task_that_is_to_begin_waits_for_no_worker() -> None:
    stage = Stage(LOAD, parent(starting()))
    stage.start()
    written: Any = next(done for done in stage.done if done.name == "command_accepted").writes[0]
    facts = ClusterFacts(now=NOW, leader="s1", capacity=_no_capacity)

    said = why(written.run, written.run.tasks[FAN], None, facts)

    assert said == "the leader starts its child runs of pipeline load next"


def test_failed_task_says_which_child_run_failed() -> None:
    stage = Stage(LOAD, parent(starting()))
    stage.start()
    (child,) = stage.children()

    stage.end(child, Outcome.FAILED)

    assert explained(stage) == (
        f"failed after 1 attempt: failed: of 1 child runs 1 failed: run {child.id}: failed: x"
    )


def test_items_are_counted_and_listed_with_their_child_runs() -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_parallel=2)))
    stage.start()
    first, second = stage.children()
    stage.end(first, Outcome.FAILED)
    run = stage.run()

    counts = children_model(run.tasks[FAN])
    listed = child_models(run, run.tasks[FAN])

    assert counts is not None
    assert (counts.total, counts.open, counts.failed, counts.waiting) == (3, 2, 1, 0)
    rows = [(row.item, row.state, row.attempt) for row in listed]
    assert rows == [
        ({"region": "eu"}, "failed", 1),
        ({"region": "us"}, "open", 1),
        ({"region": "asia"}, "open", 1),
    ]
    assert [row.run for row in listed[:2]] == [first.id, second.id]


def test_task_that_starts_no_child_runs_has_none() -> None:
    stage = Stage(LOAD)
    stage.start("alone", LOAD.name)

    run = stage.run("alone")

    assert children_model(run.tasks[TaskName("x")]) is None
    assert run_summary(run).parent is None


def test_run_names_its_parent() -> None:
    stage = Stage(LOAD, parent(starting()))
    stage.start()

    told = run_summary(stage.children()[0]).parent

    assert told is not None
    assert (told.run, told.task, told.attempt, told.index, told.depth) == ("r", "fan", 1, 0, 1)


def test_reused_item_names_the_run_whose_child_run_succeeded() -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_parallel=1)))
    stage.start()
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SUCCEEDED):
        stage.end(stage.children()[0], outcome)
    selection = Selection(scope=Scope.FAILED, reuse=RunId("r"), is_rerun=True)
    stage.ask(StartRun(pipeline=PARENT, run_id=RunId("again"), selection=selection))
    run = stage.run("again")

    rows = child_models(run, run.tasks[FAN])

    assert [(row.state, row.reused_from) for row in rows] == [
        ("succeeded", "r"),
        ("open", None),
        ("succeeded", "r"),
    ]
    assert [row.run for row in rows] == [None, stage.children("again")[0].id, None]
