"""Whether a pipeline currently fails or skips, so that one episode with many causes is one alert. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from nimbus.domain.cluster.alerts import AlertEvent
from nimbus.domain.ids import DatasetName, PipelineName, RunId
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState

MAX_DURATIONS = 20
FEWEST_DURATIONS = 5
"""With fewer durations, no lateness is predicted."""
TIMED_OUT = "timed out"
"""Prefix of the reason of a run that reached its timeout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineHealth:
    """The health of a pipeline. It is kept only if the pipeline or the cluster has notification rules."""

    name: PipelineName
    failing_since: RunId | None = None
    """The first run that failed after the last success; None: the last run succeeded, or there was none."""
    skips: bool = False
    """True when the last handled fire time started no run."""
    durations: tuple[float, ...] = ()
    """Seconds that the last complete successful runs took, oldest first. Used only to predict lateness."""
    missed: datetime | None = None
    """The last deadline that `late` was raised for."""
    foretold: datetime | None = None
    """The last deadline that `late` was raised for in advance."""
    stale: Mapping[DatasetName, datetime | None] = field(default_factory=dict)
    """Datasets that `late` was raised for, with their newest data then: newer data end the lateness."""


def fastest(health: PipelineHealth | None) -> timedelta | None:
    """The duration that nine of ten runs exceed; None: too few runs have succeeded."""
    if health is None or len(health.durations) < FEWEST_DURATIONS:
        return None
    return timedelta(seconds=sorted(health.durations)[len(health.durations) // 10])


def with_duration(health: PipelineHealth, run: Run) -> PipelineHealth:
    """The health with the duration of a run added, if the run succeeded and ran all of its tasks."""
    if run.state is not RunState.SUCCEEDED or run.started_at is None or run.finished_at is None:
        return health
    if run.selected or run.rerun_of is not None:
        return health
    took = max(0.0, (run.finished_at - run.started_at).total_seconds())
    return replace(health, durations=(*health.durations, round(took, 3))[-MAX_DURATIONS:])


def after_run(
    health: PipelineHealth, run: Run, *, has_failed_before: bool = False
) -> tuple[PipelineHealth, tuple[AlertEvent, ...]]:
    """The health after the end of a run, and the alerts to raise. A stopped run changes nothing.

    `has_failed_before`: True when another run of its backfill has failed.

    The episodes of child runs are those of their parent, which fails with them. A backfill is one episode,
    beside that of its pipeline, which the schedule begins and ends.
    """
    if run.parent is not None or run.backfill is not None:
        return health, _of_group(run, told=run.parent is not None or has_failed_before)
    if run.state is RunState.FAILED:
        if health.failing_since is not None:
            return health, ()
        return replace(health, failing_since=run.id), (_failure(run),)
    if run.state is not RunState.SUCCEEDED:
        return health, ()
    recovered = () if health.failing_since is None else (AlertEvent.RECOVERED,)
    return replace(health, failing_since=None), (*recovered, AlertEvent.SUCCEEDED)


def _of_group(run: Run, *, told: bool) -> tuple[AlertEvent, ...]:
    if run.state is RunState.FAILED and not told:
        return (_failure(run),)
    return (AlertEvent.SUCCEEDED,) if run.state is RunState.SUCCEEDED else ()


def _failure(run: Run) -> AlertEvent:
    return AlertEvent.TIMED_OUT if _timed_out(run) else AlertEvent.FAILED


def after_fires(health: PipelineHealth, *, skipped: bool, started: bool) -> tuple[PipelineHealth, bool]:
    """The health after fire times were handled, and whether to raise an alert about skips.

    Args:
        health: The health before.
        skipped: True when some of them started no run.
        started: True when the last one started a run.
    """
    return replace(health, skips=skipped and not started), skipped and not health.skips


def _timed_out(run: Run) -> bool:
    if run.reason.startswith(TIMED_OUT):
        return True
    failed = (task for task in run.tasks.in_order() if task.state is TaskState.FAILED)
    return any(_task_timed_out(task) for task in failed if not task.spec.allow_failure)


def _task_timed_out(task: TaskRun) -> bool:
    if task.settled is not None:
        return task.settled.timed_out
    return bool(task.attempts) and task.attempts[-1].outcome is Outcome.TIMED_OUT
