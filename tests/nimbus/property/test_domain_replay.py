"""Laws of a replay: a run's record shows the state of the run at any moment of its past."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from nimbus.domain.attempts.slots import End
from nimbus.domain.ids import TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import FailureClass
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.replay import as_at
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Outcome, Settlement, TaskState
from tests.nimbus.property.test_domain_lifecycle import START, runs

STEP = timedelta(minutes=10)


def states(run: Run) -> Mapping[TaskName, TaskState]:
    return {name: task.state for name, task in run.tasks.items()}


def clean_up_was_hindered(run: Run) -> bool:
    """Whether clean-up was hindered: then the record does not show when."""
    hindered = (task.spec.is_clean_up and task.state is TaskState.NOT_RUN for task in run.tasks.values())
    return any(hindered) or "its clean-up was stopped" in run.reason


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[datetime, Run]]:
    """The run after each event. The last state may not be final."""
    now, run = START, draw(runs())
    if not run.state.is_final:
        run = lifecycle.queued(run) if draw(st.booleans()) else lifecycle.started(run, now)
    found = [(now, run)]
    for _ in range(draw(st.integers(0, 60))):
        if run.state.is_final:
            break
        now += STEP
        ready = [name for name, task in run.tasks.items() if lifecycle.is_ready(run, task)]
        waiting = [name for name, task in run.tasks.items() if task.state is TaskState.WAITING]
        opened = run.open_attempts()
        choices = ["open"] * (3 * bool(ready)) + ["close"] * (3 * bool(opened)) + ["stop"]
        choices += ["mark"] * bool(waiting and not run.state.is_ending)
        if run.state is RunState.QUEUED:
            choices = ["start", "start", "stop"]
        match draw(st.sampled_from(choices)):
            case "start":
                run = lifecycle.started(run, now)
            case "open":
                name = draw(st.sampled_from(ready))
                run = lifecycle.open_attempt(run, name, worker=WorkerId("w"), epoch=1, now=now)
            case "close":
                attempt, outcome = draw(st.sampled_from(opened)), draw(st.sampled_from(Outcome))
                failure = FailureClass.ERROR if outcome is Outcome.FAILED else None
                end = End(
                    attempt=str(attempt), outcome=outcome, failure=failure, written_by="runner", ended_at=now
                )
                run = lifecycle.close_attempt(run, attempt, end, max_infrastructure_failures=3, now=now)
            case "mark":
                said = Settlement(at=now, by="ann", reason="known")
                state = draw(st.sampled_from([TaskState.SUCCEEDED, TaskState.SKIPPED]))
                name = draw(st.sampled_from(waiting))
                run = lifecycle.mark_task(run, name, state=state, settlement=said, now=now)
            case _:
                run = lifecycle.stop(run, verdict=RunState.STOPPED, reason="by hand", now=now)
        found.append((now, run))
    return found


@given(histories())
def test_a_replay_of_the_record_is_the_run_as_it_was_then(history: list[tuple[datetime, Run]]) -> None:
    _, record = history[-1]
    for at, was in history:
        again = as_at(record, at)
        assert again == as_at(record, at)
        if clean_up_was_hindered(record):
            continue
        assert states(again) == states(was)
        assert (again.state, again.verdict) == (was.state, was.verdict)
        assert again.open_attempts() == was.open_attempts()
        assert states(as_at(record, at + STEP / 2)) == states(was), "nothing happens between two events"


@given(histories())
def test_a_replay_at_the_end_is_the_record_and_nothing_final_changes_before(
    history: list[tuple[datetime, Run]],
) -> None:
    end, record = history[-1]

    assert as_at(record, end) == record
    replays = [as_at(record, at) for at, _ in history]
    for before, after in pairwise(replays):
        for name, task in before.tasks.items():
            assert not task.state.is_final or after.tasks[name] == task
            assert len(task.attempts) <= len(after.tasks[name].attempts)
    assert not any(task.attempts for task in replays[0].tasks.values())
