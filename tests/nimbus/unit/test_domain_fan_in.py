"""Fan-in: a task reads what the child runs of its own run have published, item by item."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nimbus import run_record
from nimbus.adapters.store.runs import completed_order, encode_order
from nimbus.api.routes.datasets import version_model
from nimbus.domain.attempts.orders import order_for
from nimbus.domain.attempts.workers import AssignmentKind
from nimbus.domain.commands import StartRun
from nimbus.domain.data.publications import Partitioning, Publication, Read, Version
from nimbus.domain.data.reads import ReadError
from nimbus.domain.ids import AttemptId, DatasetName, RunId, TaskName
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs import child_runs
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Outcome, TaskState
from nimbus.records import ASSIGNMENT
from nimbus.worker.driver.files import reads_document
from tests.nimbus.children_stage import CHILD, LOAD, PARENT, Stage, parent, starting

FAN, AFTER, PART = TaskName("fan"), TaskName("after"), DatasetName("part")
READ = Read(name="parts", dataset=PART, of=FAN)
THREE = starting(for_each={"region": ("eu", "us", "asia")})


def publishing(key: str = "{{ params.region }}", dataset: DatasetName = PART) -> PipelineSpec:
    """The child pipeline, whose task publishes a key."""
    (task,) = LOAD.tasks
    said = Publication(dataset=dataset, partition=Partitioning.KEY, key=key)
    return replace(LOAD, tasks=(replace(task, publishes=(said,)),))


def reading(read: Read = READ, children: Any = THREE) -> PipelineSpec:
    """The parent pipeline, whose second task reads what its child runs have published."""
    spec = parent(children)
    fan, after = spec.tasks
    return replace(spec, reads=(read,), tasks=(fan, replace(after, uses=(read.name,))))


def pinned(stage: Stage, run: str = "r") -> list[tuple[Any, str, str, Any]]:
    parts = stage.run(run).pins["parts"]
    return [(part.item, part.partition, part.run, part.value) for part in parts]


def ended(stage: Stage, run: str = "r", *, fails: str = "") -> dict[str, str]:
    """End the child runs of a run. Returns them by region."""
    found = {child.parameters["region"]: child for child in stage.children(run)}
    for region, child in found.items():
        if region == fails:
            stage.end(child, Outcome.FAILED)
        else:
            stage.end(child, rows=len(region))
    return {region: child.id for region, child in found.items()}


def rerun(scope: Scope, *tasks: TaskName, run: str = "again") -> StartRun:
    selection = Selection(scope=scope, tasks=tasks, reuse=RunId("r"), is_rerun=True)
    return StartRun(pipeline=PARENT, run_id=RunId(run), selection=selection)


def test_task_reads_what_the_child_runs_have_published_by_item_with_their_results() -> None:
    stage = Stage(publishing(), reading())
    stage.start()

    of = ended(stage)

    assert pinned(stage) == [
        ({"region": region}, region, of[region], {"rows": len(region)}) for region in ("eu", "us", "asia")
    ]
    assert stage.run().tasks[AFTER].state is TaskState.RUNNING
    shown = [version_model(part) for part in stage.run().pins["parts"]]
    assert [part.item for part in shown] == [{"region": "eu"}, {"region": "us"}, {"region": "asia"}]


def test_newer_version_of_another_run_is_not_read() -> None:
    stage = Stage(publishing(), reading())
    stage.start()
    first, second, third = stage.children()
    stage.end(first)
    stage.start("other", CHILD, parameters={"region": "eu"})
    stage.end(stage.run("other"))
    stage.end(second)
    stage.end(third)

    newest = stage.state.catalog.datasets[PART].version("eu")
    assert newest is not None and newest.run == "other"
    assert [part.run for part in stage.run().pins["parts"]] == [first.id, second.id, third.id]


def test_child_runs_that_publish_the_same_key_are_all_read() -> None:
    stage = Stage(publishing("all"), reading())
    stage.start()
    of = ended(stage)

    assert [(run, key) for _, key, run, _ in pinned(stage)] == [(run, "all") for run in of.values()]


def test_item_of_a_task_without_for_each_is_none() -> None:
    stage = Stage(publishing(), reading(children=starting(parameters={"region": "eu"})))
    stage.start()
    (child,) = stage.children()
    stage.end(child)

    assert pinned(stage) == [(None, "eu", child.id, {})]


def test_task_reads_nothing_when_there_are_no_items() -> None:
    stage = Stage(publishing(), reading(children=starting(for_each={"region": ()})))
    stage.start()

    assert stage.run().pins == {"parts": ()}
    assert stage.run().tasks[AFTER].state is TaskState.RUNNING


@pytest.mark.parametrize("optional", [False, True])
def test_task_fails_when_no_child_run_has_published_unless_it_is_optional(optional: bool) -> None:
    stage = Stage(publishing(dataset=DatasetName("other")), reading(replace(READ, optional=optional)))
    stage.start()
    ended(stage)

    after = stage.run().tasks[AFTER]
    assert after.state is (TaskState.RUNNING if optional else TaskState.FAILED)
    if not optional:
        assert after.settled is not None
        assert after.settled.reason == "parts: no child run of fan has published dataset part"


def test_rerun_of_failed_items_reads_the_parts_of_both_runs() -> None:
    stage = Stage(publishing(), reading())
    stage.start()
    of = ended(stage, fails="us")
    assert stage.run().state is RunState.FAILED

    stage.ask(rerun(Scope.FAILED))
    of |= ended(stage, "again")

    assert [part.run for part in stage.run("again").pins["parts"]] == [of["eu"], of["us"], of["asia"]]
    assert of["us"] != of["eu"]


def test_rerun_of_the_reading_task_reads_the_same_parts() -> None:
    stage = Stage(publishing(), reading())
    stage.start()
    ended(stage)
    stage.end(stage.run(), Outcome.FAILED)

    stage.ask(rerun(Scope.FROM, AFTER))

    assert stage.run("again").pins == stage.run().pins


def test_task_finds_the_parts_of_an_earlier_run_that_had_not_read_them() -> None:
    stage = Stage(publishing(), reading())
    stage.start()
    of = ended(stage)
    before = replace(stage.run(), pins={})
    stage.end(stage.run())
    stage.ask(rerun(Scope.FROM, AFTER))

    found = child_runs.children_of(stage.run("again"), READ, {RunId("r"): before}.__getitem__)

    assert [child.run for child in found] == [*of.values()]


def test_rerun_of_the_child_runs_reads_only_new_parts() -> None:
    stage = Stage(publishing(), reading())
    stage.start()
    before = ended(stage)
    stage.end(stage.run())

    stage.ask(rerun(Scope.FROM, FAN))
    after = ended(stage, "again")

    assert [part.run for part in stage.run("again").pins["parts"]] == [*after.values()]
    assert not {*after.values()} & {*before.values()}


def test_task_alone_without_an_earlier_run_says_that_there_are_no_child_runs() -> None:
    stage = Stage(publishing(), reading())
    selection = Selection(scope=Scope.ONLY, tasks=(AFTER,))
    stage.ask(StartRun(pipeline=PARENT, run_id=RunId("r"), selection=selection))

    settled = stage.run().tasks[AFTER].settled
    assert settled is not None
    assert settled.reason == "parts: task fan of run r has started no child runs"
    assert child_runs.children_of(stage.run(), replace(READ, optional=True), {}.__getitem__) == ()


def parts_of(count: int, value: dict[str, Any]) -> tuple[Version, ...]:
    stage = Stage(publishing(), reading())
    stage.start()
    child = stage.children()[0]
    stage.end(child)
    one = child_runs.EndedChild(7, stage.run(child.id), {TaskName("x"): value})
    return child_runs.published_by_children(READ, [one] * count)


def test_results_that_are_too_large_together_are_left_out() -> None:
    assert all(part.value == {"text": "x" * 4000} for part in parts_of(16, {"text": "x" * 4000}))
    assert all(part.value is None for part in parts_of(17, {"text": "x" * 4000}))


def test_more_than_a_thousand_parts_are_refused() -> None:
    assert len(parts_of(1000, {})) == 1000
    with pytest.raises(ReadError, match="1001 versions are too many"):
        parts_of(1001, {})


def test_order_takes_the_parts_from_the_record_of_the_run_as_they_were_pinned() -> None:
    stage = Stage(publishing(), reading())
    stage.start()
    ended(stage)
    run: Run = stage.run()
    assert run_record.decode(run_record.encode_new(run), "/runs/r") == run
    order = order_for(run, AttemptId(run.id, AFTER, 1), epoch=3, kind=AssignmentKind.RUN)

    stored = ASSIGNMENT.decode(encode_order(order), "/orders/1")

    assert stored.needs_in_run
    document = reads_document(completed_order(stored, run))
    assert [(one["item"], one["value"]) for one in document["parts"]] == [
        ({"region": region}, {"rows": len(region)}) for region in ("eu", "us", "asia")
    ]
