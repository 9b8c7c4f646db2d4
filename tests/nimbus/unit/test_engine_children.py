"""Tasks that start child runs: one situation each."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from nimbus import run_record
from nimbus.domain import writes as w
from nimbus.domain.commands import PauseRun, PublishRelease, ResumeRun, StartRun, StopRun
from nimbus.domain.ids import PipelineName, RunId, TaskName
from nimbus.domain.pipelines.catalog import PipelineState, ReleaseOf
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    Concurrency,
    FailureStrategy,
    PipelineSpec,
    Priority,
    Retries,
    TaskKind,
    TaskSpec,
    TriggerRule,
)
from nimbus.domain.runs.child_runs import child_of
from nimbus.domain.runs.children import DEEPEST, MAX_ITEMS, ChildSpec
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import Outcome, TaskState
from nimbus.engine.decision import Decision
from nimbus.engine.rules.run_ends import is_awaited, retire_run
from nimbus.engine.work_queue import Key
from tests.nimbus.children_stage import CHILD, LOAD, NOW, PARENT, Stage, parent, starting
from tests.nimbus.definitions import digest_of
from tests.nimbus.simulation.engine_laws import is_timed

FAN = TaskName("fan")
THREE = starting(for_each={"region": ("eu", "us", "asia")})


def test_task_starts_a_child_run_with_what_its_parent_has() -> None:
    stage = Stage(LOAD, parent(starting(parameters={"region": "{{ run.id }}", "shard": 3})))
    interval = DataInterval(start=NOW - timedelta(days=1), end=NOW)

    stage.start(priority=Priority.HIGHEST, logical_date=NOW, data_interval=interval)
    (child,) = stage.children()

    assert child.pipeline == CHILD
    assert child.release == digest_of(LOAD)
    assert child.parameters == {"region": "r", "shard": 3}
    assert (child.priority, child.logical_date, child.data_interval) == (Priority.HIGHEST, NOW, interval)
    assert child.parent is not None
    assert (child.parent.run, child.parent.task, child.parent.attempt, child.parent.index) == ("r", FAN, 1, 0)
    assert stage.state.attempts.slots.keys() == {*child.open_attempts()}, "the parent's task holds no slot"


def test_child_run_and_its_parents_record_are_written_together() -> None:
    stage = Stage(LOAD, parent(starting()))

    stage.start()

    (created,) = (done for done in stage.done if done.name == "child_run_created")
    assert [type(write) for write in created.writes] == [w.PutRun, w.CreateRun]


def test_task_succeeds_when_all_its_child_runs_have() -> None:
    stage = Stage(LOAD, parent(THREE))
    stage.start()

    for child in stage.children():
        assert stage.run().tasks[FAN].state is TaskState.RUNNING
        stage.end(child)

    assert stage.fan() == "sss"
    assert stage.run().tasks[FAN].state is TaskState.SUCCEEDED
    assert stage.run().tasks[TaskName("after")].state is TaskState.RUNNING


def test_items_are_the_product_and_the_last_list_changes_fastest() -> None:
    stage = Stage(LOAD, parent(starting(for_each={"region": ("eu", "us"), "shard": (1, 2)})))

    stage.start()

    given = [(child.parameters["region"], child.parameters["shard"]) for child in stage.children()]
    assert given == [("eu", 1), ("eu", 2), ("us", 1), ("us", 2)]


def test_item_of_one_list_is_a_value() -> None:
    stage = Stage(LOAD, parent(starting(for_each={"": ("eu", "us")}, parameters={"region": "{{ item }}"})))

    stage.start()

    assert [child.parameters["region"] for child in stage.children()] == ["eu", "us"]


def test_no_more_child_runs_are_open_than_max_parallel() -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_parallel=2)))
    stage.start()
    assert stage.fan() == "oow"

    stage.end(stage.children()[1])

    assert stage.fan() == "oso"


def test_task_fails_after_the_last_child_run_when_one_has_failed() -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_parallel=1)))
    stage.start()

    stage.end(stage.children()[0], Outcome.FAILED)
    assert stage.run().state is RunState.RUNNING
    stage.end(stage.children()[0])
    stage.end(stage.children()[0])

    assert stage.fan() == "fss"
    assert stage.run().state is RunState.FAILED
    reason = stage.run().tasks[FAN].attempts[-1].reason
    assert reason.startswith("of 3 child runs 1 failed: run load-")
    assert reason.endswith("failed: x")


def test_retry_repeats_only_child_runs_that_did_not_succeed() -> None:
    retries = Retries(limit=1, delay=timedelta(seconds=10))
    stage = Stage(LOAD, parent(THREE, retries=retries))
    stage.start()
    first = stage.children()
    for child, outcome in zip(first, (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SUCCEEDED), strict=True):
        stage.end(child, outcome)
    assert stage.run().tasks[FAN].state is TaskState.WAITING
    assert stage.children() == []

    stage.now += timedelta(seconds=10)
    stage.decide()

    assert stage.fan() == "sos"
    (again,) = stage.children()
    assert again.parameters["region"] == "us"
    assert again.parent is not None
    assert again.parent.attempt == 2
    assert again.id != first[1].id
    stage.end(again)
    assert stage.run().tasks[FAN].state is TaskState.SUCCEEDED


def test_task_that_will_not_run_again_keeps_no_timer_of_a_clock_that_went_back() -> None:
    stage = Stage(LOAD, parent(THREE, retries=Retries(limit=1, delay=timedelta(seconds=10))))
    stage.start()
    for child in stage.children():
        stage.end(child, Outcome.FAILED)
    stage.now += timedelta(seconds=10)
    stage.state.wake(stage.instant())
    stage.now -= timedelta(hours=1)
    stage.decide()
    assert is_timed(stage.state, Key("children", RunId("r"), FAN))

    stage.ask(PauseRun(run_id=RunId("r")))

    assert not is_timed(stage.state, Key("children", RunId("r"), FAN))
    stage.ask(ResumeRun(run_id=RunId("r")))
    stage.now += timedelta(hours=1)
    stage.decide()
    assert stage.fan() == "ooo"


def test_child_runs_are_of_the_release_that_was_active_when_the_parent_was_created() -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_parallel=1)))
    stage.start()
    stage.put(replace(LOAD, description="newer"))

    stage.end(stage.children()[0])

    assert stage.children()[0].release == digest_of(LOAD)


def test_queued_child_run_starts_when_its_pipeline_has_room() -> None:
    stage = Stage(replace(LOAD, concurrency=Concurrency(limit=1)), parent(THREE))
    stage.start()
    assert [child.state for child in stage.children()] == [
        RunState.RUNNING,
        RunState.QUEUED,
        RunState.QUEUED,
    ]

    stage.end(stage.children()[0])

    assert [child.state for child in stage.children()] == [RunState.RUNNING, RunState.QUEUED]


def test_child_runs_need_no_room_of_the_cluster_since_their_parents_have_it() -> None:
    stage = Stage(LOAD, parent(THREE), max_running=1)

    stage.start()
    stage.start("r2")

    assert [child.state for child in stage.children()] == [RunState.RUNNING] * 3
    assert stage.state.runs.live[RunId("r2")].state is RunState.QUEUED


def test_child_run_passes_a_run_of_its_pipeline_that_waits_for_the_cluster() -> None:
    limited = replace(LOAD, concurrency=Concurrency(limit=1))
    stage = Stage(limited, parent(replace(THREE, max_parallel=1)), max_running=1)
    stage.start()
    stage.start("by-hand", CHILD, priority=Priority.HIGHEST)
    assert stage.state.runs.live[RunId("by-hand")].state is RunState.QUEUED

    stage.end(stage.children()[0])

    assert [child.state for child in stage.children()] == [RunState.RUNNING]


def test_stop_of_the_parent_stops_its_child_runs_and_starts_no_more() -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_parallel=2)))
    stage.start()

    stage.ask(StopRun(run_id=RunId("r"), reason="enough"))

    assert stage.fan() == "xxw"
    assert stage.run().state is RunState.STOPPED
    assert stage.run().tasks[FAN].state is TaskState.NOT_RUN


def test_parent_ends_after_its_child_runs() -> None:
    stage = Stage(LOAD, parent(THREE))
    stage.start()
    attempts = list(stage.state.attempts.slots)
    assert attempts

    stage.ask(StopRun(run_id=RunId("r"), reason="enough"))

    order = [write.run for done in stage.done for write in done.writes if isinstance(write, w.PutRun)]
    ended = [run.id for run in order if run.state.is_final]
    assert ended[-1] == "r"
    assert len(ended) == 4


def test_child_run_that_somebody_stopped_fails_the_task_without_a_retry() -> None:
    stage = Stage(LOAD, parent(starting(), retries=Retries(limit=3)))
    stage.start()

    stage.ask(StopRun(run_id=stage.children()[0].id, reason="enough"))

    assert stage.run().tasks[FAN].state is TaskState.FAILED
    assert stage.run().tasks[FAN].attempts[-1].outcome is Outcome.STOPPED


@pytest.mark.parametrize(
    ("state", "said"),
    [(PipelineState.PAUSED, "is paused"), (None, "is no longer in the catalog")],
)
def test_child_run_of_a_pipeline_that_may_not_start_is_refused(
    state: PipelineState | None, said: str
) -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_parallel=1)))
    stage.start()
    if state is None:
        stage.state.forget_pipeline(CHILD)
    else:
        stage.put(LOAD, state=state)

    stage.end(stage.children()[0])

    assert stage.fan() == "srr"
    assert stage.run().state is RunState.FAILED
    assert said in stage.run().tasks[FAN].attempts[-1].reason


def test_child_run_of_a_quarantined_pipeline_is_refused_with_its_reason() -> None:
    stage = Stage(LOAD, parent(starting()))
    stage.state.catalog.put_quarantine({CHILD: "3 files are missing"})

    stage.start()

    assert "quarantined: 3 files are missing" in stage.run().tasks[FAN].attempts[-1].reason


def test_task_fails_when_its_pipeline_had_no_active_release() -> None:
    stage = Stage(parent(starting()))

    stage.start()

    settled = stage.run().tasks[FAN].settled
    assert settled is not None
    assert "had no active release when run r was created" in settled.reason


def test_task_fails_before_anything_starts_when_it_has_too_many_items() -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_items=2)))

    stage.start()

    settled = stage.run().tasks[FAN].settled
    assert settled is not None
    assert "for_each has 3 items, max_items is 2" in settled.reason
    assert not any(done.name == "child_run_created" for done in stage.done)


def test_parameters_that_do_not_fit_refuse_their_item_alone() -> None:
    stage = Stage(LOAD, parent(starting(for_each={"shard": (3, 70, 5)})))
    stage.start()

    for child in stage.children():
        stage.end(child)

    assert stage.fan() == "srs"
    assert "item 1: parameter 'shard' must be at most 9" in stage.run().tasks[FAN].attempts[-1].reason


def test_task_without_items_succeeds_without_child_runs() -> None:
    stage = Stage(LOAD, parent(starting(for_each={"shard": ()})))

    stage.start()

    assert not stage.children()
    assert stage.run().tasks[FAN].state is TaskState.SUCCEEDED


def test_child_runs_are_refused_below_the_deepest_level() -> None:
    names = [PipelineName(f"p{number}") for number in range(DEEPEST + 2)]
    chain = [parent(starting(below), name) for name, below in pairwise(names)]
    stage = Stage(*chain, replace(LOAD, name=names[-1]))

    stage.start(pipeline=names[0])

    deepest = max(run.parent.depth for run in map(_run_of, stage.done) if run is not None and run.parent)
    assert deepest == DEEPEST
    assert stage.run().state is RunState.FAILED


def test_fan_out_is_refused_before_it_starts_when_the_tree_of_runs_could_become_too_large() -> None:
    many = tuple(f"{number}" for number in range(MAX_ITEMS))
    mid = PipelineName("mid")
    wide = starting(mid, for_each={"": many[:3]}, parameters={})
    most = starting(for_each={"region": many}, max_items=MAX_ITEMS)
    stage = Stage(LOAD, parent(most, mid), parent(wide))

    stage.start()
    made = [run for run in map(_run_of, stage.done) if run is not None and run.parent]
    fan = stage.run(made[0].id).tasks[FAN]

    assert [(run.parent.depth, run.parent.width) for run in made] == [(1, 3)] * 3
    assert fan.state is TaskState.FAILED
    assert fan.settled is not None
    assert "30000 child runs of depth 2 (10000 of this task), and 20000 is the most" in fan.settled.reason


def test_fan_out_of_a_run_without_a_parent_is_as_wide_as_its_pipeline_may_be() -> None:
    lists = tuple(f"{number}" for number in range(MAX_ITEMS))
    stage = Stage(LOAD, parent(starting(for_each={"region": lists}, max_items=MAX_ITEMS, max_parallel=2)))

    stage.start()

    assert [child.parent and child.parent.width for child in stage.children()] == [MAX_ITEMS] * 2


def _run_of(done: Decision):  # type: ignore[no-untyped-def]
    return next((write.run for write in done.writes if isinstance(write, w.CreateRun)), None)


def test_publish_is_refused_when_pipelines_would_start_each_other_for_ever() -> None:
    a, b, c = (PipelineName(name) for name in "abc")
    stage = Stage(parent(starting(b), a), parent(starting(c), b))
    back = parent(starting(a), c)
    release = ReleaseOf(c, digest_of(back))
    stage.state.commands.releases.under_way.add(release)
    stage.state.commands.release_prepared(release, back)

    stage.ask(PublishRelease(pipeline=c, digest=release.digest))

    (refused,) = (done for done in stage.done if done.name == "command_refused")
    assert refused.about["code"] == "pipeline_cycle"
    assert "c starts a starts b starts c" in refused.about["message"]


def test_new_leader_goes_on_with_child_runs_and_takes_in_those_that_ended_meanwhile() -> None:
    before = Stage(LOAD, parent(replace(THREE, max_parallel=2)))
    before.start()
    runs = {run.id: run for run in before.state.runs.live.values()}
    ended = before.children()[0]
    runs[ended.id] = replace(ended, state=RunState.SUCCEEDED, finished_at=NOW)

    after = Stage(LOAD, parent(replace(THREE, max_parallel=2)))
    after.state.runs.read = {}
    for run in runs.values():
        after.state.runs.put(run, after.instant())
    after.state.finish_loading()
    after.decide()

    assert after.fan() == "soo"
    assert len(after.children()) == 2


def test_child_run_whose_record_is_gone_has_failed_for_a_new_leader() -> None:
    before = Stage(LOAD, parent(starting()))
    before.start()

    after = Stage(LOAD, parent(starting()))
    after.state.runs.put(before.state.runs.live[RunId("r")], after.instant())
    after.decide()

    assert after.run().tasks[FAN].state is TaskState.FAILED
    assert "its record is gone" in after.run().tasks[FAN].attempts[-1].reason


def test_ended_child_run_is_not_removed_before_its_parent_has_taken_that_in() -> None:
    stage = Stage(LOAD, parent(starting()))
    stage.start()
    (child,) = stage.children()
    stage.state.runs.put(replace(child, state=RunState.SUCCEEDED, finished_at=NOW), stage.instant())
    stage.state.runs.finished[child.id] = replace(stage.state.runs.finished[child.id], archived=True)
    late = NOW + timedelta(days=1)

    assert is_awaited(stage.state, child.id)
    assert not isinstance(retire_run(stage.state, child.id, late), Decision)
    stage.decide()
    assert isinstance(retire_run(stage.state, child.id, late), Decision)


def test_child_runs_are_paused_and_resumed_with_their_parent() -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_parallel=2)))
    stage.start()
    first, second = stage.children()
    stage.ask(PauseRun(run_id=first.id))

    stage.ask(PauseRun(run_id=RunId("r")))
    assert [child.paused is not None for child in stage.children()] == [True, True]
    stage.end(second)
    assert stage.fan() == "osw", "a paused run starts no more child runs"

    stage.ask(ResumeRun(run_id=RunId("r")))
    assert stage.fan() == "oso"
    assert [child.paused is not None for child in stage.children()] == [True, False]


def test_paused_child_run_goes_on_when_its_parent_does() -> None:
    stage = Stage(LOAD, parent(THREE), slots=0)
    stage.start()

    stage.ask(PauseRun(run_id=RunId("r")))
    stage.ask(ResumeRun(run_id=RunId("r")))

    assert [child.paused for child in stage.children()] == [None] * 3


def test_paused_parent_takes_in_the_end_of_its_last_child_run() -> None:
    stage = Stage(LOAD, parent(starting()))
    stage.start()
    (child,) = stage.children()
    stage.ask(PauseRun(run_id=RunId("r")))

    stage.end(child)

    assert stage.run().tasks[FAN].state is TaskState.SUCCEEDED
    assert stage.run().tasks[TaskName("after")].state is TaskState.WAITING


def test_resume_of_a_child_run_is_refused_while_its_parent_is_paused() -> None:
    stage = Stage(LOAD, parent(THREE), slots=0)
    stage.start()
    stage.ask(PauseRun(run_id=RunId("r")))

    stage.ask(ResumeRun(run_id=stage.children()[0].id))

    assert stage.done[-1].about["code"] == "parent_paused"
    assert stage.children()[0].paused is not None


def planned(**more: Any) -> PipelineSpec:
    """A pipeline whose first task returns shards. The next task starts a child run for each shard."""
    children = starting(
        for_each={"region": ("eu", "us"), "shard": "{{ tasks.plan.result.shards }}"}, max_parallel=1, **more
    )
    spec = parent(children, needs=(TaskName("plan"),), reads=(TaskName("plan"),))
    plan = TaskSpec(name=TaskName("plan"), kind=TaskKind.PYTHON, script="plan.py")
    return replace(spec, tasks=(plan, *spec.tasks))


def test_items_come_from_the_result_of_a_task_and_stay_for_all_attempts() -> None:
    spec = planned()
    fan = replace(spec.tasks[1], retries=Retries(limit=1, delay=timedelta(seconds=10)))
    stage = Stage(LOAD, replace(spec, tasks=(spec.tasks[0], fan, spec.tasks[2])))
    stage.results[TaskName("plan")] = {"shards": [3, 4]}
    stage.start()
    stage.end(stage.run())

    given = []
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SUCCEEDED, Outcome.SUCCEEDED):
        (child,) = stage.children()
        given.append((child.parameters["region"], child.parameters["shard"]))
        stage.end(child, outcome)

    assert given == [("eu", 3), ("eu", 4), ("us", 3), ("us", 4)]
    stage.results.clear()
    stage.results[TaskName("plan")] = {"shards": [8]}  # impossible, and without effect
    stage.now += timedelta(seconds=10)
    stage.decide()
    assert stage.children()[0].parameters["shard"] == 4
    assert run_record.decode(run_record.encode_new(stage.run()), "/runs/r") == stage.run()


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"shards": list(range(101))}, "for_each has 202 items, max_items is 200: nothing was started"),
        ({"shards": 7}, "for_each.shard: task plan gave no list shards"),
        ({}, "for_each.shard: task plan gave no list shards"),
        ({"shards": [[1]]}, "for_each.shard: [1] is no text, number or boolean"),
        ({"shards": ["x" * 5000]}, "for_each: the lists have"),
    ],
)
def test_task_fails_before_anything_starts_when_a_result_gives_no_items(
    result: dict[str, Any], said: str
) -> None:
    stage = Stage(LOAD, planned())
    stage.results[TaskName("plan")] = result
    stage.start()

    stage.end(stage.run())

    settled = stage.run().tasks[FAN].settled
    assert settled is not None
    assert said in settled.reason
    assert stage.run().tasks[FAN].state is TaskState.FAILED
    assert not any(done.name == "child_run_created" for done in stage.done)


def test_task_without_items_succeeds_when_a_result_gives_an_empty_list() -> None:
    stage = Stage(LOAD, planned())
    stage.results[TaskName("plan")] = {"shards": []}
    stage.start()

    stage.end(stage.run())

    assert stage.run().tasks[FAN].state is TaskState.SUCCEEDED


def from_file(text: str = "{{ tasks.plan.output }}/items.jsonl", **more: Any) -> PipelineSpec:
    """A pipeline whose first task writes a file, with an item in each line."""
    return replace_children(planned(), starting(for_each={"": text}, **more))


def replace_children(spec: PipelineSpec, children: ChildSpec) -> PipelineSpec:
    plan, fan, after = spec.tasks
    return replace(spec, tasks=(plan, replace(fan, children=children), after))


BY_FIELD = {"region": "{{ item.region }}", "shard": "{{ item.shard }}"}


def test_items_come_from_a_file_of_a_needed_task() -> None:
    stage = Stage(LOAD, from_file(parameters=BY_FIELD))
    stage.files["r.plan.1", "items.jsonl"] = b'{"region": "eu", "shard": 1}\n{"region": "us", "shard": 2}\n'
    stage.start()
    stage.end(stage.run())

    assert [tuple(child.parameters.values()) for child in stage.children()] == [("eu", 1), ("us", 2)]
    run = stage.run()
    assert run_record.decode(run_record.encode_new(run), "/runs/r") == run


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "for_each: the output of task plan has no file items.jsonl"),
        (b"1\nx\n", "for_each: items.jsonl of task plan: line 2: is not JSON"),
        (b"1\n2\n3\n", "for_each: items.jsonl of task plan: has more than 2 items"),
    ],
)
def test_task_fails_with_what_is_wrong_with_its_file(content: bytes | None, said: str) -> None:
    stage = Stage(LOAD, from_file(max_items=2, parameters={}))
    if content is not None:
        stage.files["r.plan.1", "items.jsonl"] = content
    stage.start()
    stage.end(stage.run())

    fan = stage.run().tasks[FAN]
    assert fan.state is TaskState.FAILED
    assert fan.settled is not None
    assert said in fan.settled.reason
    assert not stage.children()


def test_rerun_of_failed_items_keeps_the_items_of_the_file() -> None:
    stage = Stage(LOAD, from_file(parameters={"region": "{{ item }}"}))
    stage.files["r.plan.1", "items.jsonl"] = b'"eu"\n"us"\n"asia"\n'
    stage.start()
    stage.end(stage.run())
    one_failed(stage)
    stage.ask(rerun())

    again = stage.run("again")
    assert stage.fan("again") == "sos"
    assert [child.parameters["region"] for child in stage.children("again")] == ["us"]
    assert run_record.decode(run_record.encode_new(again), "/runs/again") == again


def rerun(scope: Scope = Scope.FAILED, of: str = "r", run: str = "again", **more: Any) -> StartRun:
    selection = Selection(scope=scope, reuse=RunId(of), is_rerun=True, **more)
    return StartRun(pipeline=PARENT, run_id=RunId(run), selection=selection)


def one_failed(stage: Stage, run: str = "r") -> None:
    """The child run of the second item fails, the others succeed."""
    for child in stage.children(run):
        failed = child.parent is not None and child.parent.index == 1
        stage.end(child, Outcome.FAILED if failed else Outcome.SUCCEEDED)


def test_rerun_of_what_failed_repeats_only_child_runs_that_did_not_succeed() -> None:
    stage = Stage(LOAD, parent(THREE))
    stage.start()
    one_failed(stage)

    stage.ask(rerun())

    assert stage.fan("again") == "sos"
    (child,) = stage.children("again")
    assert child.parameters["region"] == "us"
    assert child.parent is not None
    assert (child.parent.attempt, child.parent.index) == (1, 1)
    assert [child_of(stage.run("again"), FAN, index) is None for index in range(3)] == [True, False, True]
    again = stage.run("again")
    assert run_record.decode(run_record.encode_new(again), "/runs/again") == again
    stage.end(child)
    assert stage.run("again").tasks[FAN].state is TaskState.SUCCEEDED


def test_rerun_of_a_rerun_repeats_no_child_run_that_succeeded_in_either() -> None:
    stage = Stage(LOAD, parent(replace(THREE, max_parallel=1)))
    stage.start()
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.FAILED):
        stage.end(stage.children()[0], outcome)
    stage.ask(rerun())
    for outcome in (Outcome.SUCCEEDED, Outcome.FAILED):
        stage.end(stage.children("again")[0], outcome)
    assert stage.fan("again") == "ssf"

    stage.ask(rerun(of="again", run="third"))

    assert stage.fan("third") == "sso"


@pytest.mark.parametrize(
    "changed",
    [
        {"for_each": {"region": ("eu", "asia", "us")}},
        {"parameters": {"region": "{{ item.region }}", "shard": 1}},
        {"pipeline": PipelineName("other")},
    ],
)
def test_rerun_repeats_all_child_runs_when_the_release_starts_others(changed: dict[str, Any]) -> None:
    stage = Stage(LOAD, replace(LOAD, name=PipelineName("other")), parent(THREE))
    stage.start()
    one_failed(stage)
    stage.put(parent(replace(THREE, **changed)))

    stage.ask(rerun())

    assert stage.fan("again") == "ooo"


def test_rerun_repeats_all_child_runs_when_a_task_that_theirs_needs_is_run_again() -> None:
    spec = parent(THREE, needs=(TaskName("first"),), requirements={TaskName("first"): TriggerRule.DONE})
    first = TaskSpec(name=TaskName("first"), kind=TaskKind.PYTHON, script="x.py")
    spec = replace(spec, tasks=(first, *spec.tasks), failure_strategy=FailureStrategy.CONTINUE)
    stage = Stage(LOAD, spec)
    stage.start()
    stage.end(stage.run(), Outcome.FAILED)
    one_failed(stage)

    stage.ask(rerun())
    stage.end(stage.run("again"))

    assert stage.fan("again") == "ooo"


def test_rerun_of_all_tasks_repeats_all_child_runs() -> None:
    stage = Stage(LOAD, parent(THREE))
    stage.start()
    one_failed(stage)

    stage.ask(rerun(Scope.ALL))

    assert stage.fan("again") == "ooo"


@pytest.mark.parametrize("kept", [True, False])
def test_rerun_starts_child_runs_of_the_releases_that_the_earlier_run_had(kept: bool) -> None:
    stage = Stage(LOAD, parent(THREE))
    stage.start()
    one_failed(stage)
    newer = replace(LOAD, description="newer")
    stage.put(newer)

    stage.ask(rerun(keeps_releases=kept))

    assert [child.release for child in stage.children("again")] == [digest_of(LOAD if kept else newer)]


def test_rerun_takes_the_active_release_when_the_earlier_run_had_none() -> None:
    stage = Stage(parent(starting()))
    stage.start()
    assert stage.run().state is RunState.FAILED
    stage.put(LOAD)

    stage.ask(rerun(keeps_releases=True))

    assert [child.release for child in stage.children("again")] == [digest_of(LOAD)]


def test_refused_item_has_no_child_run() -> None:
    stage = Stage(LOAD, parent(starting(for_each={"shard": (3, 70)})))

    stage.start()

    assert stage.fan() == "or"
    assert child_of(stage.run(), FAN, 1) is None
