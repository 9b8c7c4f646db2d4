"""The law of late alerts: each is raised once, not too early, and at the latest when the subject ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from nimbus.domain import writes as w
from nimbus.domain.cluster.alerts import Alert, AlertEvent
from nimbus.domain.ids import RunId
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Attempt
from nimbus.domain.starts.timing import waits_since
from tests.nimbus.simulation.laws import Law, hold


class LateLaws:
    """See the module."""

    def __init__(self) -> None:
        self.told: set[str] = set()

    def written(self, write: w.AlertWrite, runs: Mapping[RunId, Run]) -> None:
        """A leader wrote something about alerts."""
        if isinstance(write, w.CreateAlert) and write.alert.event is AlertEvent.LATE:
            self._raised(write.alert, runs)

    def _raised(self, alert: Alert, runs: Mapping[RunId, Run]) -> None:
        hold(Law.LATE, alert.id not in self.told, alert.id, "was told before")
        self.told.add(alert.id)
        if alert.run is not None:
            limits = dict(_limits(runs[alert.run], alert.raised_at))
            what = alert.id.removeprefix(f"late.{alert.run}.").removesuffix(f".{alert.target}")
            hold(Law.LATE, what == "expect_soon" or limits[what], alert.id, "is told too early")

    def run_written(self, run: Run, writes: Sequence[w.Write]) -> None:
        """If a run ends here, alerts for all that took too long were raised, or are raised now."""
        if not run.state.is_final or run.state is RunState.STOPPED:
            return
        told = self.told | {write.alert.id for write in writes if isinstance(write, w.CreateAlert)}
        for what, is_over in _limits(run, run.finished_at or run.created_at):
            alert = f"late.{run.id}.{what}.oncall"
            hold(Law.LATE, not is_over or alert in told, alert, "is not told")


def _limits(run: Run, now: datetime) -> Iterator[tuple[str, bool]]:
    """Each limit of a run, and whether it is over."""
    if run.warn_after is not None and run.started_at is not None:
        yield "warn_after", run.started_at + run.warn_after <= now
    if run.expect is not None:
        yield "expect", run.created_at + run.expect <= now
    for name, task in run.tasks.items():
        if task.spec.warn_after is None:
            continue
        for attempt in task.attempts:
            yield f"{name}.{attempt.number}", _lasted(attempt, now) >= task.spec.warn_after
        if not task.spec.kind.uses_worker and task.warned:
            yield f"{name}.1", waits_since(run, task) + task.spec.warn_after <= now


def _lasted(attempt: Attempt, now: datetime) -> timedelta:
    return (attempt.ended_at or now) - attempt.opened_at
