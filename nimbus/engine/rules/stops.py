"""Runs that must end: overdue ones, and those whose open attempts are still to be stopped."""

from __future__ import annotations

from nimbus.domain import lifecycle
from nimbus.domain.ids import RunId
from nimbus.domain.pipeline_health import TIMED_OUT
from nimbus.domain.run import Run, RunState
from nimbus.domain.writes import PutRun, RequestStop
from nimbus.engine.agenda import Instant
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.state import State


def stop_run(state: State, run_id: RunId, now: Instant) -> Answer:
    """A run past its deadline fails. Each open attempt that must stop is asked, once, to end."""
    run = state.runs.get(run_id)
    if run is None:
        return Nothing()
    state.check_needs(run_id)
    asked = _ask_to_stop(state, run)
    if asked is not None:
        return asked
    if run.state is RunState.STOPPING:
        return Nothing()
    if run.deadline is None or run.deadline > now.wall:
        return Nothing(at=run.deadline)
    reason = f"{TIMED_OUT}: not finished by {run.deadline:%Y-%m-%d %H:%M:%S}Z"
    stopped = lifecycle.stop(run, verdict=RunState.FAILED, reason=reason, now=now.wall)
    return Decision(name="run_timed_out", writes=(PutRun(stopped, run),), about={"run": run.id})


def _ask_to_stop(state: State, run: Run) -> Decision | None:
    if run.verdict is None:
        return None
    for attempt in run.open_attempts():
        if not lifecycle.must_stop(run, attempt.task):
            continue
        opened = state.open_attempt(attempt)
        if opened is not None and not opened[1].stop_requested:
            return Decision(
                name="attempt_stop_requested",
                writes=(PutRun(lifecycle.ask_to_stop(run, attempt), run), RequestStop(attempt, run.reason)),
                about={"attempt": str(attempt), "reason": run.reason},
            )
    return None
