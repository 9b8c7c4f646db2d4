"""The laws of alerts: raised with their cause, once for each episode; a repeated message is marked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from nimbus.domain import writes as w
from nimbus.domain.cluster.alerts import Alert, AlertState
from nimbus.domain.ids import BackfillId, PipelineName
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState
from tests.nimbus.dict_cluster import World as Records
from tests.nimbus.simulation.laws import Law, hold

ENDED = (AlertState.SENT, AlertState.NOT_DELIVERED)
"""States after which no more tries are made."""


class AlertLaws:
    """See the module."""

    def __init__(self) -> None:
        self.kept: dict[str, Alert] = {}
        self.arrivals: Counter[str] = Counter()
        self._raised: set[str] = set()
        self._failing: set[PipelineName] = set()
        self._failed_backfills: set[BackfillId] = set()

    def written(self, write: w.AlertWrite) -> None:
        """A leader wrote something about alerts."""
        match write:
            case w.CreateAlert(alert):
                self._raised.add(alert.id)
                self.kept[alert.id] = alert
            case w.PutAlert(alert):
                hold(Law.ALERT_SENT, alert.id in self.kept, alert.id, "is not there")
                accepted = alert.state is not AlertState.SENT or self.arrivals[alert.id]
                hold(Law.ALERT_SENT, accepted, alert.id, "is marked as sent")
                self.kept[alert.id] = alert
            case w.RemoveAlert(alert_id):
                hold(Law.ALERT_SENT, self.kept.pop(alert_id).state in ENDED, alert_id, "is removed")
            case _:
                pass

    def pipeline_written(self, write: w.CreatePipeline | w.PutPipeline | w.RemovePipelineRecord) -> None:
        """Removing a pipeline from the catalog removes its episode."""
        if isinstance(write, w.RemovePipelineRecord):
            self._failing.discard(write.record.name)

    def run_written(
        self, write: w.CreateRun | w.PutRun | w.RemoveRun, writes: Sequence[w.Write], before: Records
    ) -> None:
        """If a run ends here, its alerts are in the same transaction."""
        if isinstance(write, w.RemoveRun) or not write.run.state.is_final:
            return
        if isinstance(write, w.PutRun) and write.before.state.is_final:
            return
        raised = {write.alert.id for write in writes if isinstance(write, w.CreateAlert)}
        for expected in self._expected(write.run):
            there = expected in raised or expected in before.alerts
            hold(Law.ALERT_RAISED, there, expected, "is not raised, but", sorted(raised))

    def _expected(self, run: Run) -> list[str]:
        name, failing = run.pipeline, run.pipeline in self._failing
        if run.parent is not None or run.backfill is not None:
            return self._expected_of_group(run)
        match run.state:
            case RunState.FAILED if not failing:
                self._failing.add(name)
                return [f"{_word(run)}.{run.id}.oncall", f"{_word(run)}.{run.id}.team"]
            case RunState.SUCCEEDED:
                self._failing.discard(name)
                more = [f"recovered.{run.id}.oncall", f"recovered.{run.id}.team"] if failing else []
                return [f"succeeded.{run.id}.oncall", *more]
            case _:
                return []

    def _expected_of_group(self, run: Run) -> list[str]:
        if run.state is RunState.SUCCEEDED:
            return [f"succeeded.{run.id}.oncall"]
        if run.state is not RunState.FAILED or run.backfill is None or run.backfill in self._failed_backfills:
            return []
        self._failed_backfills.add(run.backfill)
        return [f"{_word(run)}.{run.id}.oncall", f"{_word(run)}.{run.id}.team"]

    def arrived(self, alert: Alert) -> None:
        """A target accepted an alert."""
        again = self.arrivals[alert.id] > 0
        hold(Law.ALERT_ONCE, alert.may_repeat or not again, alert.id, "arrives again, try", alert.tries)
        self.arrivals[alert.id] += 1

    def close(self) -> None:
        """After the calm: all alerts have been sent."""
        missing = self._raised - self.arrivals.keys()
        hold(Law.ALERT_SENT, not missing, "never arrived:", sorted(missing))


def _word(run: Run) -> str:
    slow = any(
        t.settled.timed_out
        if t.settled is not None
        else t.attempts and t.attempts[-1].outcome is Outcome.TIMED_OUT
        for t in _failed(run)
    )
    return "timed_out" if slow or run.reason.startswith("timed out") else "failed"


def _failed(run: Run) -> list[TaskRun]:
    tasks = run.tasks.in_order()
    return [task for task in tasks if task.state is TaskState.FAILED and not task.spec.allow_failure]
