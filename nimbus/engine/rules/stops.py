"""Runs that must end: overdue runs, and runs with open attempts that must stop."""

from __future__ import annotations

from dataclasses import replace

from nimbus.domain import lifecycle
from nimbus.domain.ids import RunId
from nimbus.domain.pipeline_health import TIMED_OUT
from nimbus.domain.run import Paused, Run, RunState
from nimbus.domain.writes import PutRun, RequestStop
from nimbus.engine.agenda import Instant
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.state import State


def stop_run(state: State, run_id: RunId, now: Instant) -> Answer:
    """Fail a run past its deadline. Request once that each open attempt that must stop ends."""
    run = state.runs.live.get(run_id)
    if run is None:
        return Nothing()
    state.runs.check_needs(run_id)
    asked = _ask_to_stop(state, run)
    if asked is not None:
        return asked
    if run.state is RunState.STOPPING:
        return Nothing()
    if (with_parent := _follow_parent(state, run, now)) is not None:
        return with_parent
    if run.deadline is None or run.deadline > now.wall:
        return Nothing(at=run.deadline)
    reason = f"{TIMED_OUT}: not finished by {run.deadline:%Y-%m-%d %H:%M:%S}Z"
    stopped = lifecycle.stop(run, verdict=RunState.FAILED, reason=reason, now=now.wall)
    return Decision(name="run_timed_out", writes=(PutRun(stopped, run),), about={"run": run.id})


def _follow_parent(state: State, run: Run, now: Instant) -> Decision | None:
    """Stop, pause or resume a child run together with its parent."""
    link = run.parent
    parent = None if link is None else state.runs.live.get(link.run)
    if link is None or parent is None:
        return None
    about = {"run": str(run.id), "parent": str(parent.id)}
    if lifecycle.must_stop(parent, link.task):
        reason = f"its parent, run {parent.id}, is being stopped: {parent.reason}"
        stopped = lifecycle.stop(run, verdict=RunState.STOPPED, reason=reason, now=now.wall)
        return None if stopped is run else _moved("child_run_stopped", stopped, run, about)
    by = f"run {parent.id}"
    if parent.paused is not None and run.paused is None:
        paused = replace(run, paused=Paused(by=by, at=now.wall))
        return _moved("child_run_paused", paused, run, about)
    if parent.paused is None and run.paused is not None and run.paused.by == by:
        return _moved("child_run_resumed", replace(run, paused=None), run, about)
    return None


def _moved(name: str, run: Run, before: Run, about: dict[str, str]) -> Decision:
    return Decision(name=name, writes=(PutRun(run, before),), about=about)


def _ask_to_stop(state: State, run: Run) -> Decision | None:
    if run.verdict is None:
        return None
    for attempt in run.open_attempts():
        if not lifecycle.must_stop(run, attempt.task):
            continue
        opened = state.attempts.find(attempt)
        if opened is not None and not opened[1].stop_requested:
            return Decision(
                name="attempt_stop_requested",
                writes=(PutRun(lifecycle.ask_to_stop(run, attempt), run), RequestStop(attempt, run.reason)),
                about={"attempt": str(attempt), "reason": run.reason},
            )
    return None
