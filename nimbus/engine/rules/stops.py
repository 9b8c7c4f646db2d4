"""Runs that must end: overdue ones, and those whose open attempts are still to be stopped."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from nimbus.domain import lifecycle
from nimbus.domain.run import RunState
from nimbus.domain.writes import PutRun, RequestStop
from nimbus.engine.decision import Decision
from nimbus.engine.facts import Facts, with_run


def stop_overdue_runs(facts: Facts, now: datetime) -> Decision | None:
    """A run that is past its deadline fails."""
    for run in facts.live_runs():
        if run.state is RunState.RUNNING and run.deadline is not None and run.deadline <= now:
            reason = f"timed out: not finished by {run.deadline:%Y-%m-%d %H:%M:%S}Z"
            stopped = lifecycle.stop(run, verdict=RunState.FAILED, reason=reason, now=now)
            return Decision(
                name="run_timed_out",
                facts=with_run(facts, stopped),
                writes=(PutRun(stopped),),
                about={"run": run.id},
            )
    return None


def ask_runners_to_stop(facts: Facts, _now: datetime) -> Decision | None:
    """An open attempt of a stopping run is asked, once, to end."""
    for attempt_id, run, attempt in facts.open_attempts():
        if run.state is RunState.STOPPING and not attempt.stop_requested:
            asked = lifecycle.ask_to_stop(run, attempt_id)
            return Decision(
                name="attempt_stop_requested",
                facts=with_run(facts, asked),
                writes=(PutRun(asked), RequestStop(attempt_id, run.reason)),
                about={"attempt": str(attempt_id), "reason": run.reason},
            )
    return None


def moments(facts: Facts) -> Iterator[datetime]:
    """Deadlines of runs."""
    for run in facts.live_runs():
        if run.deadline is not None:
            yield run.deadline
