"""How a run changes, case by case. General laws are in tests/nimbus/property."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from nimbus.domain.attempts.slots import End
from nimbus.domain.errors import InvalidTransitionError
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import (
    FailureClass,
    FailureStrategy,
    Priority,
    Retries,
    TaskKind,
    TaskSpec,
    TriggerRule,
)
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts import needs

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
RUN_ID = RunId("flights-1")


def spec(
    name: str,
    *needs: str,
    retries: int = 0,
    priority: Priority = Priority.MEDIUM,
    on: tuple[FailureClass, ...] | None = None,
    asks: str = "succeeded",
    when: str = "",
    allow_failure: bool = False,
) -> TaskSpec:
    return TaskSpec(
        name=TaskName(name),
        kind=TaskKind.PYTHON,
        script=f"{name}.py",
        needs=tuple(TaskName(need) for need in needs),
        requirements={} if asks == "succeeded" else {TaskName(need): TriggerRule(asks) for need in needs},
        when=when,
        allow_failure=allow_failure,
        retries=Retries(limit=retries, delay=timedelta(seconds=10), on=on),
        priority=priority,
    )


def a_run(*specs: TaskSpec, strategy: FailureStrategy = FailureStrategy.END) -> Run:
    return Run(
        id=RUN_ID,
        pipeline=PipelineName("flights"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=strategy,
        tasks=Tasks(TaskRun(spec=s) for s in specs),
    )


def opened(run: Run, task: str, worker: str = "w1") -> Run:
    return lifecycle.open_attempt(run, TaskName(task), worker=WorkerId(worker), epoch=1, now=NOW)


def closed(
    run: Run,
    task: str,
    outcome: Outcome,
    number: int = 1,
    max_infrastructure_failures: int = 3,
    failure: FailureClass | None = None,
) -> Run:
    attempt = AttemptId(RUN_ID, TaskName(task), number)
    end = End(
        attempt=str(attempt),
        outcome=outcome,
        failure=failure,
        written_by="runner",
        ended_at=NOW,
        output=f"out/{number}",
    )
    return lifecycle.close_attempt(
        run, attempt, end, max_infrastructure_failures=max_infrastructure_failures, now=NOW
    )


def ready(run: Run, now: datetime) -> list[str]:
    return sorted(
        task.spec.name
        for task in run.tasks.values()
        if lifecycle.is_ready(run, task) and (task.retry_at is None or task.retry_at <= now)
    )


def test_only_tasks_without_open_needs_are_ready() -> None:
    assert ready(a_run(spec("b"), spec("a"), spec("later", "a")), NOW) == ["a", "b"]


def test_a_task_becomes_ready_when_its_last_need_succeeds() -> None:
    run = closed(opened(a_run(spec("a"), spec("b", "a")), "a"), "a", Outcome.SUCCEEDED)

    assert ready(run, NOW) == ["b"]
    assert lifecycle.committed_outputs(run, [TaskName("a")]) == {"a": "out/1"}


def test_a_second_attempt_cannot_open_while_the_first_is_open() -> None:
    run = opened(a_run(spec("a")), "a")

    with pytest.raises(InvalidTransitionError):
        opened(run, "a")


def test_an_attempt_cannot_be_closed_twice() -> None:
    run = closed(opened(a_run(spec("a"), spec("b")), "a"), "a", Outcome.SUCCEEDED)

    with pytest.raises(InvalidTransitionError):
        closed(run, "a", Outcome.FAILED)


def test_a_failure_within_the_retry_limit_waits_for_its_pause() -> None:
    run = closed(opened(a_run(spec("a", retries=1)), "a"), "a", Outcome.FAILED)

    assert run.tasks[TaskName("a")].state is TaskState.WAITING
    assert ready(run, NOW) == []
    assert ready(run, NOW + timedelta(seconds=10)) == ["a"]


def test_a_failure_beyond_the_retry_limit_fails_the_run_and_runs_nothing_more() -> None:
    run = closed(opened(a_run(spec("a"), spec("b", "a")), "a"), "a", Outcome.TIMED_OUT)

    assert run.state is RunState.FAILED
    assert run.finished_at == NOW
    assert run.tasks[TaskName("b")].state is TaskState.NOT_RUN
    assert run.reason == "failed: a"


def test_strategy_end_lets_the_run_stop_what_is_open_before_it_fails() -> None:
    run = opened(opened(a_run(spec("a"), spec("b"), spec("c")), "a"), "b")
    run = closed(run, "a", Outcome.FAILED)

    assert run.state is RunState.STOPPING
    assert run.tasks[TaskName("c")].state is TaskState.NOT_RUN
    assert closed(run, "b", Outcome.STOPPED).state is RunState.FAILED


def test_strategy_continue_hinders_only_what_depends_on_the_failure() -> None:
    run = a_run(spec("a"), spec("b", "a"), spec("c", "b"), spec("d"), strategy=FailureStrategy.CONTINUE)
    run = closed(opened(run, "a"), "a", Outcome.FAILED)

    assert run.state is RunState.RUNNING
    assert [run.tasks[TaskName(t)].state for t in "bcd"] == [
        TaskState.NOT_RUN,
        TaskState.NOT_RUN,
        TaskState.WAITING,
    ]
    assert closed(opened(run, "d"), "d", Outcome.SUCCEEDED).state is RunState.FAILED


def test_a_lost_attempt_is_tried_again_without_using_up_retries() -> None:
    run = closed(opened(a_run(spec("a")), "a"), "a", Outcome.LOST)

    task = run.tasks[TaskName("a")]
    assert (task.state, task.failures, task.infrastructure_failures) == (TaskState.WAITING, 0, 1)
    assert task.retry_at is not None


def test_a_task_that_is_lost_too_often_fails() -> None:
    run = a_run(spec("a"))
    for number in (1, 2, 3):
        later = NOW + timedelta(hours=1)
        assert ready(run, later) == ["a"]
        run = closed(opened(run, "a"), "a", Outcome.LOST, number)

    assert run.state is RunState.FAILED


def test_success_that_arrives_while_the_run_stops_still_counts_for_its_task() -> None:
    run = opened(a_run(spec("a"), spec("b", "a")), "a")
    run = lifecycle.stop(run, verdict=RunState.STOPPED, reason="by hand", now=NOW)
    run = closed(run, "a", Outcome.SUCCEEDED)

    assert run.state is RunState.STOPPED
    assert run.tasks[TaskName("a")].state is TaskState.SUCCEEDED
    assert run.tasks[TaskName("b")].state is TaskState.NOT_RUN


def test_a_second_stop_keeps_the_first_reason() -> None:
    run = opened(a_run(spec("a")), "a")
    run = lifecycle.stop(run, verdict=RunState.STOPPED, reason="first", now=NOW)

    assert lifecycle.stop(run, verdict=RunState.FAILED, reason="second", now=NOW) == run


def test_retry_pauses_grow_and_are_bounded() -> None:
    policy = Retries(limit=9, delay=timedelta(seconds=10), factor=3, max_delay=timedelta(seconds=60))

    assert [policy.pause_after(n).total_seconds() for n in (1, 2, 3, 99)] == [10, 30, 60, 60]


def test_failure_class_of_an_end_is_kept_in_its_attempt() -> None:
    run = closed(opened(a_run(spec("a")), "a"), "a", Outcome.FAILED, failure=FailureClass.MISSING_INPUT)

    assert run.tasks[TaskName("a")].attempts[-1].failure is FailureClass.MISSING_INPUT


@pytest.mark.parametrize(
    ("failure", "on", "state"),
    [
        (FailureClass.ERROR, None, TaskState.WAITING),
        (FailureClass.ANALYSIS, None, TaskState.FAILED),
        (FailureClass.ANALYSIS, (FailureClass.ANALYSIS,), TaskState.WAITING),
        (FailureClass.ERROR, (FailureClass.ANALYSIS,), TaskState.FAILED),
        (None, (FailureClass.ANALYSIS,), TaskState.WAITING),  # END of a worker that does not report classes
    ],
)
def test_task_is_tried_again_only_after_failures_that_its_retries_name(
    failure: FailureClass | None, on: tuple[FailureClass, ...] | None, state: TaskState
) -> None:
    run = opened(a_run(spec("a", retries=5, on=on)), "a")

    assert closed(run, "a", Outcome.FAILED, failure=failure).tasks[TaskName("a")].state is state


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.FENCED, Outcome.REFUSED])
def test_what_was_lost_or_never_ran_is_tried_again_whatever_the_retries_name(outcome: Outcome) -> None:
    run = opened(a_run(spec("a", retries=0, on=(FailureClass.KILLED,))), "a")

    assert closed(run, "a", outcome).tasks[TaskName("a")].state is TaskState.WAITING


def states(run: Run) -> dict[str, str]:
    return {str(name): task.state.value for name, task in run.tasks.items()}


@pytest.mark.parametrize("ending", ["succeeded", "skipped", "failed", "not_run"])
@pytest.mark.parametrize(
    ("asks", "expected"),
    [
        ("succeeded", ("waiting", "skipped", "not_run", "not_run")),
        ("not_failed", ("waiting", "waiting", "not_run", "not_run")),
        ("failed", ("skipped", "skipped", "waiting", "waiting")),
        ("done", ("waiting", "waiting", "waiting", "waiting")),
        ("one_failed", ("skipped", "skipped", "waiting", "waiting")),
        ("none_failed_min_one_success", ("waiting", "skipped", "not_run", "not_run")),
    ],
)
def test_a_task_follows_how_its_need_has_ended(asks: str, expected: tuple[str, ...], ending: str) -> None:
    first, middle = spec("first", allow_failure=True), spec("middle", "first")
    if ending == "skipped":
        middle = spec("middle", "first", when="false")
    if ending == "failed":
        middle = spec("middle", "first", allow_failure=True)
    last = spec("last", "middle", asks=asks)
    run = opened(lifecycle.begin(a_run(first, middle, last), NOW), "first")
    run = closed(run, "first", Outcome.FAILED if ending == "not_run" else Outcome.SUCCEEDED)
    if ending in ("succeeded", "failed"):
        run = closed(opened(run, "middle"), "middle", Outcome(ending))

    column = ["succeeded", "skipped", "failed", "not_run"].index(ending)
    assert states(run)["middle"] == ending
    assert states(run)["last"] == expected[column]


@pytest.mark.parametrize(
    ("asks", "left", "right", "expected"),
    [
        ("one_failed", "failed", "succeeded", "waiting"),
        ("one_failed", "skipped", "failed", "waiting"),
        ("one_failed", "failed", "failed", "waiting"),
        ("one_failed", "succeeded", "skipped", "skipped"),
        ("none_failed_min_one_success", "skipped", "succeeded", "waiting"),
        ("none_failed_min_one_success", "succeeded", "succeeded", "waiting"),
        ("none_failed_min_one_success", "skipped", "skipped", "skipped"),
        ("none_failed_min_one_success", "succeeded", "failed", "not_run"),
        ("none_failed_min_one_success", "skipped", "failed", "not_run"),
        ("one_failed", "failed", "left out", "waiting"),
        ("one_failed", "succeeded", "left out", "skipped"),
        ("one_failed", "left out", "left out", "waiting"),
        ("none_failed_min_one_success", "skipped", "left out", "skipped"),
        ("none_failed_min_one_success", "left out", "left out", "waiting"),
    ],
)
def test_a_word_that_counts_needs_asks_for_one_of_them(
    asks: str, left: str, right: str, expected: str
) -> None:
    def need(name: str, ends: str) -> TaskRun:
        is_left_out = ends == "left out"
        state = TaskState.SKIPPED if is_left_out else TaskState(ends)
        return TaskRun(spec=spec(name), state=state, left_out=is_left_out)

    last = spec("last", "left", "right", asks=asks)
    known = {task.spec.name: task for task in (need("left", left), need("right", right))}

    state = needs.state_after(last, known.__getitem__)
    assert state is not None
    assert state.value == expected


def test_a_skip_by_another_word_stands_beside_a_word_that_counts() -> None:
    last = replace(spec("last", "a", "b"), requirements={TaskName("b"): TriggerRule.ONE_FAILED})
    known = {
        TaskName(name): TaskRun(spec=spec(name), state=state)
        for name, state in (("a", TaskState.SKIPPED), ("b", TaskState.FAILED))
    }

    assert needs.state_after(last, known.__getitem__) is TaskState.SKIPPED


def test_one_failed_waits_for_the_other_needs_and_is_clean_up() -> None:
    run = a_run(spec("a"), spec("b"), spec("page", "a", "b", asks="one_failed"))
    run = closed(opened(opened(run, "a"), "b"), "a", Outcome.FAILED)

    assert run.is_cleaning_up
    assert not lifecycle.is_ready(run, run.tasks[TaskName("page")])
    run = closed(run, "b", Outcome.SUCCEEDED)
    run = closed(opened(run, "page"), "page", Outcome.SUCCEEDED)
    assert (run.state, run.reason) == (RunState.FAILED, "failed: a")


def test_a_task_is_not_decided_about_before_all_its_needs_are_final() -> None:
    run = a_run(spec("a"), spec("b"), spec("c", "a", "b"), strategy=FailureStrategy.CONTINUE)
    run = closed(opened(opened(run, "a"), "b"), "a", Outcome.FAILED)

    assert states(run)["c"] == "waiting"
    assert states(closed(run, "b", Outcome.SUCCEEDED))["c"] == "not_run"


def test_a_run_whose_tasks_are_all_skipped_has_succeeded() -> None:
    run = lifecycle.begin(a_run(spec("a", when="false"), spec("b", "a")), NOW)

    assert (run.state, states(run)) == (RunState.SUCCEEDED, {"a": "skipped", "b": "skipped"})


def test_a_run_succeeds_without_a_task_that_may_fail() -> None:
    run = a_run(spec("a"), spec("extras", "a", allow_failure=True), spec("after", "extras"))
    run = closed(opened(run, "a"), "a", Outcome.SUCCEEDED)
    run = closed(opened(run, "extras"), "extras", Outcome.FAILED)

    assert (run.state, states(run)["after"]) == (RunState.SUCCEEDED, "not_run")


def test_a_failure_that_is_handled_fails_the_run_all_the_same() -> None:
    run = opened(a_run(spec("a"), spec("page", "a", asks="failed")), "a")
    run = closed(opened(closed(run, "a", Outcome.FAILED), "page"), "page", Outcome.SUCCEEDED)

    assert (run.state, run.reason) == (RunState.FAILED, "failed: a")


def test_clean_up_runs_though_its_run_ends_with_the_first_failure() -> None:
    run = a_run(
        spec("load"),
        spec("other"),
        spec("publish", "load"),
        spec("clean", "publish", asks="done"),
        spec("page", "publish", asks="failed"),
        spec("after", "clean"),
    )
    run = closed(opened(opened(run, "load"), "other"), "load", Outcome.FAILED)

    assert run.is_cleaning_up
    assert ready(run, NOW) == ["clean", "page"]
    assert [name for name in ("load", "other", "clean") if lifecycle.must_stop(run, TaskName(name))] == [
        "load",
        "other",
    ]
    run = closed(run, "other", Outcome.STOPPED)
    run = closed(opened(run, "clean"), "clean", Outcome.SUCCEEDED)
    run = closed(opened(run, "page"), "page", Outcome.SUCCEEDED)
    assert (run.state, run.reason) == (RunState.FAILED, "failed: load")
    assert states(run) == {
        "load": "failed",
        "other": "not_run",
        "publish": "not_run",
        "clean": "succeeded",
        "page": "succeeded",
        "after": "not_run",
    }


def test_clean_up_waits_for_what_is_being_stopped() -> None:
    run = a_run(spec("a"), spec("b"), spec("clean", "a", "b", asks="done"))
    run = closed(opened(opened(run, "a"), "b"), "a", Outcome.FAILED)

    assert ready(run, NOW) == []
    assert ready(closed(run, "b", Outcome.STOPPED), NOW) == ["clean"]


def test_a_stop_by_hand_starts_no_clean_up() -> None:
    run = opened(a_run(spec("a"), spec("clean", "a", asks="done")), "a")
    run = lifecycle.stop(run, verdict=RunState.STOPPED, reason="by hand", now=NOW)
    run = closed(run, "a", Outcome.STOPPED)

    assert (run.state, states(run)["clean"]) == (RunState.STOPPED, "not_run")


def test_a_stop_by_hand_ends_a_clean_up_and_the_run_has_failed() -> None:
    run = closed(opened(a_run(spec("a"), spec("clean", "a", asks="done")), "a"), "a", Outcome.FAILED)
    run = lifecycle.stop(opened(run, "clean"), verdict=RunState.STOPPED, reason="by hand", now=NOW)
    run = closed(run, "clean", Outcome.STOPPED)

    assert (run.state, states(run)["clean"]) == (RunState.FAILED, "not_run")
    assert run.reason == "failed: a; its clean-up was stopped: by hand"


def test_clean_up_that_runs_is_not_stopped_by_a_failure_elsewhere() -> None:
    run = a_run(spec("load"), spec("drop", "load", asks="done"), spec("report"))
    run = closed(opened(opened(run, "load"), "report"), "load", Outcome.SUCCEEDED)
    run = closed(opened(run, "drop"), "report", Outcome.FAILED)

    assert run.is_cleaning_up
    assert not lifecycle.must_stop(run, TaskName("drop"))
    run = closed(run, "drop", Outcome.SUCCEEDED)
    assert (run.state, run.reason) == (RunState.FAILED, "failed: report")
