"""Whether a pipeline fails or skips at present: what makes many causes one episode, told of once. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.notify import AlertEvent
from nimbus.domain.run import Run, RunState
from nimbus.domain.task_run import Outcome, TaskState

MOST_DURATIONS = 20
FEWEST_DURATIONS = 5
"""Of fewer runs nothing is foretold."""
TIMED_OUT = "timed out"
"""How the reason of a run begins that reached its timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineHealth:
    """Of a pipeline whose runs, or whose cluster, ask for alerts."""

    name: PipelineName
    failing_since: RunId | None = None
    """The first run that failed since one has succeeded; None: the last one succeeded, or there was none."""
    skips: bool = False
    """The last fire time that was dealt with started no run."""
    durations: tuple[float, ...] = ()
    """How many seconds the last whole runs took that succeeded, oldest first. Kept for what is late alone."""
    missed: datetime | None = None
    """The last deadline that `late` was raised for."""
    foretold: datetime | None = None
    """The last one that it was raised for before the fact."""


def fastest(health: PipelineHealth | None) -> timedelta | None:
    """What nine of ten runs take longer than; None: too few have succeeded."""
    if health is None or len(health.durations) < FEWEST_DURATIONS:
        return None
    return timedelta(seconds=sorted(health.durations)[len(health.durations) // 10])


def with_duration(health: PipelineHealth, run: Run) -> PipelineHealth:
    """The health after a run, if that succeeded, and was asked for all of its tasks."""
    if run.state is not RunState.SUCCEEDED or run.started_at is None or run.finished_at is None:
        return health
    if run.selected or run.rerun_of is not None:
        return health
    took = max(0.0, (run.finished_at - run.started_at).total_seconds())
    return replace(health, durations=(*health.durations, round(took, 3))[-MOST_DURATIONS:])


def after_run(health: PipelineHealth, run: Run) -> tuple[PipelineHealth, tuple[AlertEvent, ...]]:
    """The health after the end of a run, and what there is to tell. A stopped run changes nothing."""
    if run.state is RunState.FAILED:
        if health.failing_since is not None:
            return health, ()
        event = AlertEvent.TIMED_OUT if _timed_out(run) else AlertEvent.FAILED
        return replace(health, failing_since=run.id), (event,)
    if run.state is not RunState.SUCCEEDED:
        return health, ()
    recovered = () if health.failing_since is None else (AlertEvent.RECOVERED,)
    return replace(health, failing_since=None), (*recovered, AlertEvent.SUCCEEDED)


def after_fires(health: PipelineHealth, *, skipped: bool, started: bool) -> tuple[PipelineHealth, bool]:
    """The health after fire times were dealt with, and whether to alert about skips.

    Args:
        health: Before.
        skipped: Some started no run.
        started: The last one did.
    """
    return replace(health, skips=skipped and not started), skipped and not health.skips


def _timed_out(run: Run) -> bool:
    if run.reason.startswith(TIMED_OUT):
        return True
    failed = (task for task in run.tasks.in_order() if task.state is TaskState.FAILED)
    return any(
        task.attempts[-1].outcome is Outcome.TIMED_OUT
        for task in failed
        if task.attempts and not task.spec.allow_failure
    )
