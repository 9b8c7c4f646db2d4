"""Runs that only wait hold no place, and take one by their age when their wait is over."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nimbus.api.explain.queue import QueueView
from nimbus.api.explain.task import ClusterFacts, why, why_run
from nimbus.domain.attempts.slots import End, Slots
from nimbus.domain.commands import DecideApproval, MarkTask, PauseRun, ResumeRun, StartRun, StopRun
from nimbus.domain.ids import PipelineName, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import (
    CatchUp,
    Concurrency,
    PipelineSpec,
    Priority,
    Schedule,
    TaskKind,
    TaskSpec,
    WhenFull,
)
from nimbus.domain.runs import child_runs
from nimbus.domain.runs.children import ChildSpec
from nimbus.domain.runs.run import Places, RunState
from nimbus.domain.runs.task_run import Outcome
from nimbus.domain.starts.waits import SELF, DataProbe, DataSource, DataWait, PipelineWait, ProbeResult
from nimbus.engine.state import State
from tests.nimbus.definitions import active
from tests.nimbus.unit.test_engine_concurrency import (
    NOW,
    at,
    decide_all,
    end_all_attempts,
    known,
    start,
    states,
    submit,
)

ODS, MART, TOP = PipelineName("ods"), PipelineName("mart"), PipelineName("top")
DAY, LATER = timedelta(days=1), NOW + timedelta(seconds=5)
LOOK = DataProbe(DataSource.FILE, "/data/x")


def python(name: str, *needs: str) -> TaskSpec:
    needed = tuple(TaskName(need) for need in needs)
    return TaskSpec(name=TaskName(name), kind=TaskKind.PYTHON, script="a.py", needs=needed)


def wait(name: str, *needs: str, pipeline: PipelineName | None = None) -> TaskSpec:
    """A wait for a pipeline; without one, for a file."""
    waits = DataWait(source=DataSource.FILE) if pipeline is None else PipelineWait(pipeline=pipeline)
    args = ("/data/x",) if pipeline is None else ()
    spec = replace(python(name, *needs), kind=TaskKind.WAIT, script="", waits_for=(waits,), args=args)
    return replace(spec, timeout=timedelta(hours=6))


def approval(name: str, *needs: str) -> TaskSpec:
    return replace(python(name, *needs), kind=TaskKind.APPROVAL, script="", args=("go on?",))


def spec_of(name: PipelineName, *tasks: TaskSpec, limit: int | None = None) -> PipelineSpec:
    return PipelineSpec(
        name=name, tasks=tasks, concurrency=None if limit is None else Concurrency(limit=limit)
    )


def cluster(*specs: PipelineSpec, max_running: int | None = None) -> State:
    state = known(specs[0], slots=8, max_running=max_running)
    for spec in specs[1:]:
        state.put_pipeline(active(spec, schedule_position=NOW, updated_at=NOW))
    return state


def day_of(name: str, pipeline: PipelineName, day: int = 0) -> StartRun:
    interval = DataInterval(start=NOW + day * DAY, end=NOW + (day + 1) * DAY)
    return replace(start(name, pipeline=pipeline), logical_date=interval.end, data_interval=interval)


def approve(run: str, task: str) -> DecideApproval:
    return DecideApproval(run_id=RunId(run), task=TaskName(task), approved=True, reason="good")


def next_term(before: State) -> State:
    """Another leader, that has read the records."""
    state = State(epoch=4, schema=1, policy=before.policy)
    for record in before.catalog.pipelines.values():
        state.put_pipeline(record)
    state.put_workers(tuple(before.attempts.workers.registered.values()), at(NOW))
    for run in before.runs.live.values():
        state.runs.put(run, at(NOW))
    state.finish_loading()
    return state


def fail_all_attempts(state: State) -> None:
    for attempt in tuple(state.attempts.slots):
        end = End(attempt=str(attempt), outcome=Outcome.FAILED, reason="", written_by="r", ended_at=NOW)
        state.attempts.put_slots(attempt, Slots(end=end), at(NOW))
    decide_all(state)


def facts(state: State, limit: int | None = None, max_running: int | None = None) -> ClusterFacts:
    view = QueueView(live=tuple(state.runs.live.values()), limit=limit, max_running=max_running)
    return ClusterFacts(
        now=NOW,
        leader="s1",
        capacity=state.capacity,
        upstream=state.upstream,
        queue=lambda _: view,
        run=state.runs.live.get,
    )


def test_runs_that_wait_for_another_pipeline_leave_its_runs_their_places() -> None:
    state = cluster(
        spec_of(ODS, python("a")), spec_of(MART, wait("w", pipeline=ODS), python("b", "w")), max_running=2
    )
    submit(state, day_of("m1", MART), day_of("m2", MART, 1), day_of("o1", ODS), day_of("o2", ODS, 1))

    decide_all(state)

    assert states(state) == dict.fromkeys(("m1", "m2", "o1", "o2"), "running")
    for _ in range(2):
        end_all_attempts(state)
        decide_all(state)
    assert state.runs.live == {}
    assert len(state.runs.finished) == 4


def test_run_that_waits_for_an_approval_leaves_the_only_place_to_others() -> None:
    state = cluster(
        spec_of(MART, approval("ok"), python("b", "ok")), spec_of(ODS, python("a")), max_running=1
    )
    submit(state, start("m1", pipeline=MART))
    decide_all(state)
    submit(state, start("o1", pipeline=ODS), start("o2", pipeline=ODS))

    decide_all(state)

    assert states(state) == {"m1": "running", "o1": "running", "o2": "queued"}


@pytest.mark.parametrize("takes_over", [False, True])
def test_run_whose_wait_is_over_takes_its_place_by_its_age(takes_over: bool) -> None:
    state = cluster(
        spec_of(MART, approval("ok"), python("b", "ok")), spec_of(ODS, python("a")), max_running=1
    )
    submit(state, start("m1", pipeline=MART), start("o1", pipeline=ODS), start("o2", pipeline=ODS))
    decide_all(state)
    begun_at = state.runs.live[RunId("m1")].started_at
    submit(state, approve("m1", "ok"))

    decide_all(state, LATER)
    if takes_over:
        state = next_term(state)
        decide_all(state, LATER)

    assert states(state) == {"m1": "queued", "o1": "running", "o2": "queued"}
    end_all_attempts(state, LATER)
    decide_all(state, LATER)
    assert states(state) == {"m1": "running", "o2": "queued"}, "m1 is older than o2"
    assert state.runs.live[RunId("m1")].started_at == begun_at
    end_all_attempts(state, LATER)
    decide_all(state, LATER)
    assert states(state) == {"o2": "running"}


def test_older_queued_run_starts_before_a_wait_that_ends_at_the_same_time() -> None:
    state = cluster(spec_of(ODS, python("a")), spec_of(MART, wait("w"), python("b", "w")), max_running=1)
    submit(state, start("o1", pipeline=ODS), start("o2", pipeline=ODS), start("m1", pipeline=MART))
    decide_all(state)
    end_all_attempts(state)
    state.tasks.data_seen(LOOK, ProbeResult(there=True, said=""), at(NOW))

    decide_all(state)

    assert states(state) == {"m1": "queued", "o2": "running"}


def test_waits_of_a_run_that_is_queued_again_go_on_after_it_has_started() -> None:
    tasks = approval("ok"), wait("w"), python("b", "ok"), python("c", "w")
    state = cluster(spec_of(MART, *tasks), spec_of(ODS, python("a")), max_running=1)
    submit(state, start("m1", pipeline=MART), start("o1", pipeline=ODS))
    decide_all(state)
    submit(state, approve("m1", "ok"))
    decide_all(state)
    assert states(state) == {"m1": "queued", "o1": "running"}
    assert state.tasks.probes.take_due(0.0) == [], "a queued run looks for nothing"

    end_all_attempts(state)
    decide_all(state)
    end_all_attempts(state)
    decide_all(state)

    assert states(state) == {"m1": "running"}
    assert state.tasks.probes.take_due(0.0) == [LOOK]
    assert state.runs.live[RunId("m1")].holds is Places.PIPELINE


def test_rerun_of_a_failed_run_starts_beside_the_run_that_waits_for_it() -> None:
    state = cluster(spec_of(MART, wait("w", pipeline=SELF), python("b", "w"), limit=1))
    submit(state, day_of("m1", MART), day_of("m2", MART, 1))
    decide_all(state)
    assert states(state) == {"m1": "running", "m2": "running"}
    fail_all_attempts(state)

    submit(state, day_of("m1-again", MART))
    decide_all(state)

    assert states(state) == {"m1-again": "running", "m2": "running"}
    end_all_attempts(state)
    decide_all(state)
    end_all_attempts(state)
    decide_all(state)
    assert state.runs.live == {}


def test_run_with_a_task_that_has_run_keeps_its_place_in_its_pipeline_while_it_waits() -> None:
    spec = spec_of(MART, python("a"), approval("ok", "a"), python("b", "ok"), limit=1)
    state = cluster(spec, spec_of(ODS, python("a")), max_running=1)
    submit(state, start("m1", pipeline=MART), start("m2", pipeline=MART))
    decide_all(state)
    end_all_attempts(state)
    submit(state, start("o1", pipeline=ODS))
    decide_all(state)
    assert states(state) == {"m1": "running", "m2": "queued", "o1": "running"}

    submit(state, approve("m1", "ok"))
    decide_all(state)
    assert states(state) == {"m1": "queued", "m2": "queued", "o1": "running"}
    submit(state, PauseRun(run_id=RunId("m1")))
    decide_all(state)
    end_all_attempts(state)
    decide_all(state)
    assert states(state) == {"m1": "queued", "m2": "queued"}, "paused, it keeps its place"

    submit(state, ResumeRun(run_id=RunId("m1")))
    decide_all(state)
    assert states(state) == {"m1": "running", "m2": "queued"}
    end_all_attempts(state)
    decide_all(state)
    assert states(state) == {"m2": "running"}


def test_queued_run_of_which_only_waits_are_left_starts_to_wait() -> None:
    spec = spec_of(MART, approval("ok"), python("b", "ok"), wait("w"))
    state = cluster(spec, spec_of(ODS, python("a")), max_running=1)
    submit(state, start("m1", pipeline=MART), start("o1", pipeline=ODS))
    decide_all(state)
    submit(state, approve("m1", "ok"))
    decide_all(state)
    assert states(state)["m1"] == "queued"

    submit(state, MarkTask(run_id=RunId("m1"), task=TaskName("b"), state="succeeded", reason="by hand"))
    decide_all(state)

    assert states(state) == {"m1": "running", "o1": "running"}


def test_scheduled_run_replaces_one_that_waits_without_a_place() -> None:
    spec = PipelineSpec(
        name=MART,
        tasks=(wait("w"), python("b", "w")),
        schedule=Schedule(cron="0 * * * *", timezone="UTC", catchup=CatchUp.ALL),
        concurrency=Concurrency(limit=1, when_full=WhenFull.REPLACE),
    )
    state = known(spec)

    decide_all(state, NOW + timedelta(hours=1))
    decide_all(state, NOW + timedelta(hours=2))

    assert states(state) == {"mart-20260301t140000z": "running"}


def starts(pipeline: PipelineName, *needs: str, name: str = "c", **how: Any) -> TaskSpec:
    """A task that starts runs of a pipeline."""
    children = ChildSpec(pipeline=pipeline, **how)
    return replace(python(name, *needs), kind=TaskKind.PIPELINE, script="", children=children)


def below(state: State) -> list[RunId]:
    """Child runs, oldest first."""
    return sorted(
        (run.id for run in state.runs.live.values() if run.parent), key=lambda one: one.split("-")[-1]
    )


@pytest.mark.parametrize("takes_over", [False, True])
def test_run_whose_child_run_only_waits_leaves_its_place_to_the_run_that_is_waited_for(
    takes_over: bool,
) -> None:
    mart = spec_of(MART, wait("w", pipeline=ODS), python("b", "w"))
    top = spec_of(TOP, starts(MART), python("d", "c"))
    state = cluster(top, mart, spec_of(ODS, python("a")), max_running=1)
    submit(state, day_of("t", TOP), day_of("o1", ODS), day_of("o2", ODS, 1))
    decide_all(state)
    (child,) = below(state)
    assert states(state) == {"t": "running", child: "running", "o1": "running", "o2": "queued"}
    if takes_over:
        state = next_term(state)

    end_all_attempts(state)
    decide_all(state)
    assert states(state) == {"t": "running", child: "queued", "o2": "running"}, "its wait is over"
    if takes_over:
        state = next_term(state)
    end_all_attempts(state)
    submit(state, start("o3", pipeline=ODS))
    decide_all(state)
    assert states(state) == {"t": "running", child: "running", "o3": "queued"}
    end_all_attempts(state)
    decide_all(state)
    assert (states(state), {attempt.run for attempt in state.attempts.slots}) == (
        {"t": "running", "o3": "queued"},
        {"t"},
    )
    end_all_attempts(state)
    decide_all(state)
    assert states(state) == {"o3": "running"}


def test_child_runs_keep_the_place_of_the_run_at_the_top_while_one_of_them_works() -> None:
    top = spec_of(TOP, starts(MART, for_each={"": (1, 2, 3)}, max_parallel=1), python("d", "c"))
    middle = spec_of(PipelineName("middle"), starts(TOP))
    mart = spec_of(MART, python("a"))
    state = cluster(middle, top, mart, spec_of(ODS, python("a")), max_running=1)
    submit(state, start("m", pipeline=middle.name))
    decide_all(state)
    submit(state, start("o1", Priority.HIGH, ODS))
    decide_all(state)
    for _ in range(4):
        assert (states(state)["o1"], len(state.attempts.slots)) == ("queued", 1)
        end_all_attempts(state)
        decide_all(state)

    assert states(state) == {"o1": "running"}


def test_run_that_is_queued_again_beside_its_child_run_takes_in_its_end_and_stops_with_it() -> None:
    mart = spec_of(MART, approval("ok"))
    top = spec_of(TOP, starts(MART), approval("yes"), python("d", "yes"), python("e", "c"))
    state = cluster(top, mart, spec_of(ODS, python("a")), max_running=1)
    submit(state, start("t", pipeline=TOP), start("u", pipeline=TOP))
    decide_all(state)
    submit(state, start("o1", pipeline=ODS))
    decide_all(state)
    first, second = (state.runs.live[RunId(name)] for name in ("t", "u"))
    first_child, second_child = (child_runs.child_of(run, TaskName("c"), 0) or "" for run in (first, second))
    submit(state, approve("t", "yes"), approve("u", "yes"), approve(first_child, "ok"))
    decide_all(state)
    assert states(state) == {"t": "queued", "u": "queued", second_child: "running", "o1": "running"}

    submit(state, StopRun(run_id=RunId("u"), reason="test"))
    decide_all(state)
    assert states(state) == {"t": "queued", "o1": "running"}
    for _ in range(2):
        end_all_attempts(state)
        decide_all(state)
    assert state.runs.live == {}
    assert state.runs.finished[RunId("t")].state is RunState.SUCCEEDED


def test_runs_of_a_pipeline_with_a_limit_whose_child_runs_wait_do_not_mix() -> None:
    state = cluster(spec_of(TOP, starts(MART), limit=1), spec_of(MART, approval("ok")), max_running=1)
    submit(state, start("t1", pipeline=TOP), start("t2", pipeline=TOP))
    decide_all(state)
    (child,) = below(state)
    assert states(state) == {"t1": "running", "t2": "queued", child: "running"}

    submit(state, approve(child, "ok"))
    decide_all(state)

    (child,) = below(state)
    assert states(state) == {"t2": "running", child: "running"}


def test_explanations_name_a_circle_of_a_place_and_a_wait_as_a_circle() -> None:
    spec = spec_of(MART, python("a"), wait("w", "a", pipeline=SELF), python("b", "w"), limit=1)
    state = cluster(spec)
    submit(state, day_of("m1", MART))
    decide_all(state)
    fail_all_attempts(state)
    submit(state, day_of("m2", MART, 1))
    decide_all(state)
    end_all_attempts(state)
    submit(state, day_of("m1-again", MART), day_of("m3", MART, 2))
    decide_all(state)
    assert states(state) == {"m1-again": "queued", "m2": "running", "m3": "queued"}
    circle = (
        "; this is a circle: m1-again and m2 wait for each other. "
        "Stop one of them, mark the task that waits, or raise the limit"
    )
    again, waiting, later = (state.runs.live[RunId(name)] for name in ("m1-again", "m2", "m3"))

    assert (why_run(again, facts(state, 1)) or "").endswith(f"concurrency.limit is 1{circle}")
    assert (why(waiting, waiting.tasks[TaskName("w")], None, facts(state, 1)) or "").endswith(circle)
    assert (why_run(later, facts(state, 1)) or "").endswith(circle), "it waits behind the circle"
    assert (why_run(again, facts(state, 2)) or "").count("circle") == 0


def test_explanations_name_a_circle_through_the_place_of_a_parent() -> None:
    mart = spec_of(MART, wait("w", pipeline=TOP))
    state = cluster(spec_of(TOP, starts(MART), limit=1), mart)
    submit(state, day_of("t1", TOP), day_of("t2", TOP))
    decide_all(state)
    (child,) = below(state)
    assert states(state) == {"t1": "running", "t2": "queued", child: "running"}
    circle = f"; this is a circle: {child} and t1 and t2 wait for each other. "
    waiting, queued = state.runs.live[child], state.runs.live[RunId("t2")]

    assert circle in (why(waiting, waiting.tasks[TaskName("w")], None, facts(state, 1)) or "")
    assert circle in (why_run(queued, facts(state, 1)) or "")
    assert "circle" not in (why_run(queued, facts(state, 2)) or "")


def test_run_that_waits_beside_a_circle_for_a_run_that_starts_later_is_in_none() -> None:
    begun = python("a")
    mart = spec_of(MART, begun, wait("w", "a", pipeline=ODS), python("b", "w"), limit=1)
    both = wait("w", "a", pipeline=ODS), wait("x", "a", pipeline=MART)
    state = cluster(
        spec_of(TOP, begun, *both, python("b", "w", "x"), limit=1), mart, spec_of(ODS, begun, limit=1)
    )
    submit(state, day_of("m1", MART, 1), day_of("t1", TOP, 1))
    decide_all(state)
    end_all_attempts(state)
    submit(state, day_of("o1", ODS), day_of("o2", ODS, 1), day_of("m2", MART, 1), day_of("t2", TOP, 1))
    decide_all(state)
    assert {name for name, one in states(state).items() if one == "queued"} == {"o2", "m2", "t2"}

    assert "circle" not in (why_run(state.runs.live[RunId("t2")], facts(state, 1)) or ""), (
        "o2 starts after o1"
    )
