"""Laws of a run's life, for any graph and any order of events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from nimbus.domain.attempts.slots import End
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

MAX_INFRASTRUCTURE = 3
START = datetime(2026, 3, 1, tzinfo=UTC)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    size = draw(st.integers(1, 6))
    names = [TaskName(f"t{i}") for i in range(size)]
    tasks = {}
    for index, name in enumerate(names):
        needs = draw(st.sets(st.sampled_from(names[:index]))) if index else set()
        tasks[name] = TaskRun(
            spec=TaskSpec(
                name=name,
                kind=TaskKind.PYTHON,
                script="x.py",
                needs=tuple(sorted(needs)),
                requirements={need: draw(st.sampled_from(TriggerRule)) for need in sorted(needs)},
                when=draw(st.sampled_from(["", "", "true", "false"])),
                allow_failure=draw(st.integers(0, 3)) == 0,
                retries=Retries(
                    limit=draw(st.integers(0, 2)),
                    delay=timedelta(seconds=1),
                    on=draw(st.none() | st.just((FailureClass.ERROR, FailureClass.OUT_OF_MEMORY))),
                ),
            )
        )
    run = Run(
        id=RunId("r"),
        pipeline=PipelineName("p"),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=START,
        created_at=START,
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=draw(st.sampled_from(FailureStrategy)),
        tasks=Tasks(tasks.values()),
    )
    return lifecycle.begin(run, START)


WORDS = {
    ("succeeded", "succeeded"): "go",
    ("succeeded", "skipped"): "skip",
    ("not_failed", "succeeded"): "go",
    ("not_failed", "skipped"): "go",
    ("failed", "succeeded"): "skip",
    ("failed", "skipped"): "skip",
    ("failed", "failed"): "go",
    ("failed", "not_run"): "go",
}
"""The effect of one need, from the documentation. `done` always allows; missing combinations hinder."""


def one_of(run: Run, spec: TaskSpec, word: str) -> str:
    """The effect of all needs with a word that counts over them."""
    ends = [run.tasks[need].state.value for need in spec.needs if spec.requirements[need] == word]
    failed = any(end in ("failed", "not_run") for end in ends)
    if word == "one_failed":
        return "go" if failed or not ends else "skip"
    return "hinder" if failed else "go" if "succeeded" in ends or not ends else "skip"


def follows(run: Run, spec: TaskSpec) -> TaskState | None:
    """The table's answer for a task; None: not known yet."""
    found: set[str] = set()
    for need in spec.needs:
        if not (state := run.tasks[need].state).is_final:
            return None
        asked = spec.requirements[need].value
        if asked in ("one_failed", "none_failed_min_one_success"):
            found.add(one_of(run, spec, asked))
        else:
            found.add("go" if asked == "done" else WORDS.get((asked, state.value), "hinder"))
    if "hinder" in found:
        return TaskState.NOT_RUN
    return TaskState.SKIPPED if "skip" in found or spec.when == "false" else TaskState.WAITING


def check(before: Run, run: Run) -> None:
    for name, task in run.tasks.items():
        outcomes = [attempt.outcome for attempt in task.attempts]
        assert None not in outcomes[:-1], "only the last attempt may be open"
        assert [attempt.number for attempt in task.attempts] == list(range(1, len(outcomes) + 1))
        assert outcomes.count(Outcome.SUCCEEDED) <= 1
        assert all(task.spec.retries.covers(attempt.failure) for attempt in task.attempts[:-1])
        assert task.failures <= task.spec.retries.limit + 1
        assert task.infrastructure_failures <= MAX_INFRASTRUCTURE
        assert (task.state is TaskState.RUNNING) == (task.open_attempt is not None)
        if before.tasks[name].state.is_final:
            assert task == before.tasks[name], "what is final never changes"
        expected = follows(run, task.spec)
        if task.attempts or task.state is TaskState.SKIPPED:
            assert expected is (TaskState.WAITING if task.attempts else TaskState.SKIPPED)
        if run.state is RunState.RUNNING and expected in (TaskState.SKIPPED, TaskState.NOT_RUN):
            assert task.state in (expected, TaskState.NOT_RUN), "decided as soon as it can be"
        if task.state is TaskState.NOT_RUN and run.verdict is None:
            assert expected is TaskState.NOT_RUN or run.state.is_final, "nothing else hinders a task"
    if run.state.is_final:
        assert not run.open_attempts()
        assert all(task.state.is_final for task in run.tasks.values())
        assert run.finished_at is not None
        bad = [t for t in run.tasks.values() if t.state is TaskState.FAILED and not t.spec.allow_failure]
        assert (run.state is RunState.SUCCEEDED) <= (not bad)
        assert run.verdict is not None or (run.state is RunState.FAILED) == bool(bad)
    else:
        assert run.open_attempts() or any(task.state is TaskState.WAITING for task in run.tasks.values()), (
            "a live run can always go on"
        )


@given(runs(), st.data())
def test_any_order_of_events_keeps_the_laws_and_comes_to_an_end(run: Run, data: st.DataObject) -> None:
    now = START
    for _ in range(400):
        if run.state.is_final:
            break
        before = run
        now += timedelta(minutes=10)
        ready = [task for task in run.tasks.values() if lifecycle.is_ready(run, task)]
        open_attempts = run.open_attempts()
        choices = ["open"] * bool(ready) + ["close"] * bool(open_attempts)
        if not data.draw(st.integers(0, 15)):
            choices.append("stop")
        match data.draw(st.sampled_from(choices)):
            case "open":
                task = data.draw(st.sampled_from(ready))
                run = lifecycle.open_attempt(run, task.spec.name, worker=WorkerId("w"), epoch=1, now=now)
            case "close":
                attempt: AttemptId = data.draw(st.sampled_from(open_attempts))
                outcome = data.draw(st.sampled_from(Outcome))
                failure = data.draw(st.sampled_from(FailureClass)) if outcome is Outcome.FAILED else None
                end = End(
                    attempt=str(attempt),
                    outcome=outcome,
                    failure=failure,
                    written_by="runner",
                    ended_at=now,
                )
                run = lifecycle.close_attempt(
                    run, attempt, end, max_infrastructure_failures=MAX_INFRASTRUCTURE, now=now
                )
            case _:
                run = lifecycle.stop(run, verdict=RunState.STOPPED, reason="by hand", now=now)
        check(before, run)
    assert run.state.is_final
