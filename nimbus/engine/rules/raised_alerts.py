"""Alerts that a decision raises. They are written in its transaction, so none is lost or created twice.

Every decision passes here, whatever rule made it: the alert depends on how a run ends, not on the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from nimbus.config.values import format_duration
from nimbus.domain import writes as w
from nimbus.domain.cluster.alerts import KEEP_SENT, Alert, AlertEvent, Lateness, NotifyRule
from nimbus.domain.cluster.settings import Hold
from nimbus.domain.ids import DatasetName, PipelineName, RunId, WorkerId
from nimbus.domain.pipelines.pipeline_health import PipelineHealth, after_fires, after_run, with_duration
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun
from nimbus.domain.starts.timing import newly_asked, newly_late, passed
from nimbus.engine.decision import Decision
from nimbus.engine.state import State

EARLY_ENDS = 3
"""After so many early ends in a row, a task that is kept running raises `failed`."""
MAX_WAITING = 200
"""Limit of waiting alerts of one target. Further ones are only counted, in the newest one."""


@dataclass(slots=True)
class _Raised:
    """Collects the alerts and health records that follow from the writes of one decision."""

    state: State
    now: datetime
    alerts: dict[str, tuple[Alert, bool]] = field(default_factory=dict)
    """Alerts by id; True: the alert is new."""
    health: dict[PipelineName, PipelineHealth] = field(default_factory=dict)

    def run(self, before: Run | None, run: Run) -> None:
        rules = self._rules(run.notify)
        if not rules:
            return
        for worker, why in sorted(_lost(before, run).items()):
            about = f"run {run.id} lost an attempt on worker {worker}: {why}"
            self._raise(rules, AlertEvent.WORKER_LOST, run.pipeline, about, worker, run.id)
        self._late(rules, before, run)
        for task in _not_kept(before, run):
            part = f"{task.spec.name}.{task.tried}"
            self._raise(rules, AlertEvent.FAILED, run.pipeline, not_kept_words(run, task), part, run.id)
        if run.state.is_final and (before is None or not before.state.is_final):
            backfill = None if run.backfill is None else self.state.catalog.backfills.get(run.backfill)
            failed_before = backfill is not None and backfill.failed > backfill.refused
            health, events = after_run(self._health_of(run.pipeline), run, has_failed_before=failed_before)
            if run.expect is not None or self._has_deadline(run.pipeline):
                health = with_duration(health, run)
            self.health[run.pipeline] = health
            for event in events:
                self._raise(rules, event, run.pipeline, _ending(run), "", run.id)

    def _has_deadline(self, name: PipelineName) -> bool:
        record = self.state.catalog.pipelines.get(name)
        return record is not None and record.profile.deadline is not None

    def deadline(self, health: PipelineHealth) -> None:
        record = self.state.catalog.pipelines.get(health.name)
        before = self.state.alerts.health.get(health.name) or PipelineHealth(name=health.name)
        if record is None or record.profile.schedule is None:
            return
        rules, zone = self._rules(record.profile.notify), ZoneInfo(record.profile.schedule.timezone)
        for at, known, part in (
            (health.missed, before.missed, ""),
            (health.foretold, before.foretold, "-soon"),
        ):
            if at is not None and at != known:
                about = deadline_words(health.name, at.astimezone(zone), is_over=not part)
                self._raise(rules, AlertEvent.LATE, health.name, about, f"{at:%Y%m%dt%H%M%S}{part}")

    def holds(self, holds: Mapping[str, Hold]) -> None:
        for name, hold in holds.items():
            known = self.state.settings.holds.get(name)
            if hold.alerted and not (known is not None and known.alerted):
                about, part = f"hold {name} lasts long: {hold.words(name)}", f"hold-{name}"
                self._raise(self._rules(None), AlertEvent.LATE, PipelineName(""), about, part)

    def stale(self, health: PipelineHealth) -> None:
        record = self.state.catalog.pipelines.get(health.name)
        before = self._health_of(health.name).stale.items()
        if record is None:
            return
        for name, newest in health.stale.items() - before:
            about = stale_words(name, newest, record.profile.fresh[name])
            part = f"{name}.{newest:%Y%m%dt%H%M%S}" if newest is not None else name
            self._raise(self._rules(record.profile.notify), AlertEvent.LATE, health.name, about, part)

    def _late(self, rules: tuple[NotifyRule, ...], before: Run | None, run: Run) -> None:
        if before is None:  # a new run cannot be late
            return
        late = [lateness for lateness in run.late if lateness not in before.late]
        if run.finished_at is not None and run.state is not RunState.STOPPED:
            late += [lateness for lateness in passed(run, run.finished_at) if lateness not in late]
        for lateness in late:
            self._raise(
                rules, AlertEvent.LATE, run.pipeline, late_words(run, lateness), lateness.value, run.id
            )
        for task, attempt in newly_late(before, run):
            about = task_late_words(run, task, attempt)
            self._raise(rules, AlertEvent.LATE, run.pipeline, about, f"{task.spec.name}.{attempt}", run.id)
        for task in newly_asked(before, run):
            about = f"task {task.spec.name} of run {run.id} waits for an approval: {' '.join(task.spec.args)}"
            event = AlertEvent.WAITING_FOR_APPROVAL
            self._raise(rules, event, run.pipeline, about, task.spec.name, run.id)

    def fires(self, record: w.PutPipeline, *, started: bool) -> None:
        rules = self._rules(record.record.profile.notify)
        moved = record.record.positions_of_all != record.before.positions_of_all
        if not rules or not moved:
            return
        name, skipped = record.record.name, record.skipped
        self.health[name], told = after_fires(self._health_of(name), skipped=skipped > 0, started=started)
        if told:
            last = record.record.skips.listed[-1]
            about = f"the schedule passed over {skipped} fire times, up to {last.last:%Y-%m-%d %H:%M %Z}: "
            part = "-".join(filter(None, (f"{last.last:%Y%m%dt%H%M%S}", last.schedule)))
            self._raise(rules, AlertEvent.SKIPPED_FIRE, name, about + last.reason, part)

    def writes(self) -> Iterator[w.Write]:
        for name, health in self.health.items():
            known = self.state.alerts.health.get(name)
            if known != health and (known is not None or health != PipelineHealth(name=name)):
                yield w.PutHealth(health, is_new=known is None)
        for alert, is_new in self.alerts.values():
            yield w.CreateAlert(alert) if is_new else w.PutAlert(alert)

    def _rules(self, own: tuple[NotifyRule, ...] | None) -> tuple[NotifyRule, ...]:
        return self.state.policy.alerts.of(own)

    def _health_of(self, name: PipelineName) -> PipelineHealth:
        return self.health.get(name) or self.state.alerts.health.get(name) or PipelineHealth(name=name)

    def _raise(
        self,
        rules: Iterable[NotifyRule],
        event: AlertEvent,
        pipeline: PipelineName,
        about: str,
        part: str,
        run: RunId | None = None,
    ) -> None:
        record = self.state.catalog.pipelines.get(pipeline)
        cause = ".".join(filter(None, (event.value, run or pipeline, part)))
        for target in sorted({rule.to for rule in rules if event in rule.on}):
            alert = Alert(
                id=f"{cause}.{target}",
                event=event,
                target=target,
                pipeline=pipeline,
                run=run,
                about=about,
                runbook="" if record is None else record.profile.runbook,
                raised_at=self.now,
            )
            self._put(alert)

    def _put(self, alert: Alert) -> None:
        outbox = self.state.alerts.outbox
        standing = outbox.get(alert.id)
        if alert.id in self.alerts or (standing is not None and _still_says(standing, self.now)):
            return
        newest = outbox.newest_waiting(alert.target)
        if newest is not None and outbox.waiting(alert.target) >= MAX_WAITING:
            more = self.alerts.get(newest.id, (newest, False))[0].more + 1
            self.alerts[newest.id] = replace(newest, more=more), False
            return
        self.alerts[alert.id] = alert, standing is None


def with_alerts(state: State, decision: Decision, now: datetime) -> Decision:
    """The decision, with the alerts that it raises."""
    raised = _Raised(state, now)
    more: list[w.Write] = []
    for write in decision.writes:
        match write:
            case w.PutRun(run, before):
                raised.run(before, run)
            case w.CreateRun(run):
                raised.run(None, run)
            case w.PutHealth(health, _):
                raised.deadline(health)
                raised.stale(health)
            case w.PutSettings(settings):
                raised.holds(settings.holds)
            case w.PutPipeline():
                started = any(isinstance(other, w.CreateRun) for other in decision.writes)
                raised.fires(write, started=started)
            case w.RemovePipelineRecord(record) if record.name in state.alerts.health:
                more.append(w.RemoveHealth(record.name))
            case (
                w.CreatePipeline()
                | w.RemovePipelineRecord()
                | w.PutIntervals()
                | w.PutDataset()
                | w.RemoveDatasetRecord()
                | w.PutDue()
                | w.PutBackfill()
                | w.RemoveBackfill()
                | w.RemoveRun()
                | w.ConsumeCommand()
                | w.PutCommand()
                | w.PutAbdication()
                | w.CreateTerm()
                | w.PutTerm()
                | w.RaiseSchema()
                | w.CreateAttempt()
                | w.RemoveAttempt()
                | w.Assign()
                | w.Unassign()
                | w.WriteClaim()
                | w.WriteEnd()
                | w.RequestStop()
                | w.CreateAlert()
                | w.PutAlert()
                | w.RemoveAlert()
                | w.RemoveHealth()
            ):
                continue
    more += raised.writes()
    return replace(decision, writes=(*decision.writes, *more)) if more else decision


def _still_says(alert: Alert, now: datetime) -> bool:
    """True when an existing alert covers the new cause. False: it is about an earlier run with that id."""
    return alert.ended_at is None or alert.ended_at + KEEP_SENT > now


def _lost(before: Run | None, run: Run) -> dict[WorkerId, str]:
    lost = {}
    for was, task in run.tasks.changes_since(None if before is None else before.tasks):
        if was is None or was.open_attempt is None or not task.attempts:
            continue
        last = task.attempts[-1]
        if last.outcome is Outcome.LOST:
            lost[last.worker] = last.reason
    return lost


def _not_kept(before: Run | None, run: Run) -> Iterator[TaskRun]:
    """Tasks that are kept running, and have just ended early for the `EARLY_ENDS`-th time in a row."""
    for was, task in run.tasks.changes_since(None if before is None else before.tasks):
        if task.early_ends == EARLY_ENDS and was is not None and was.early_ends < EARLY_ENDS:
            yield task


def not_kept_words(run: Run, task: TaskRun) -> str:
    """Text about a task that is kept running, and does not."""
    last = task.attempts[-1]
    why = f"{last.ending}{': ' + last.reason if last.reason else ''}"
    return (
        f"task {task.spec.name} of run {run.id} is kept running, and ended {EARLY_ENDS} times in a row soon "
        f"after its start; attempt {last.number} {why}"
    )


def _ending(run: Run) -> str:
    return f"run {run.id} {run.reason or run.state.value}"


def deadline_words(pipeline: PipelineName, deadline: datetime, *, is_over: bool) -> str:
    """Text about a pipeline. `deadline`: in local time."""
    at = f"{deadline:%Y-%m-%d %H:%M %Z}"
    if is_over:
        return f"pipeline {pipeline} is late: no run of its last fire time succeeded by its deadline, {at}"
    return (
        f"pipeline {pipeline} will be late: the run of its last fire time has not started, or too late, "
        f"and most runs before it took longer than what was left until its deadline, {at}"
    )


def stale_words(dataset: DatasetName, newest: datetime | None, fresh: timedelta) -> str:
    """Text about a dataset."""
    if newest is None:
        return f"dataset {dataset} is late: nothing was published for {format_duration(fresh)} (fresh)"
    return (
        f"dataset {dataset} is late: its newest data are of {newest:%Y-%m-%d %H:%M %Z}, "
        f"and older than {format_duration(fresh)} (fresh)"
    )


def late_words(run: Run, what: Lateness) -> str:
    """Text about a run."""
    match what:
        case Lateness.WARN_AFTER if run.warn_after is not None:
            why = f"it has been under way for more than {format_duration(run.warn_after)} (warn_after)"
        case Lateness.EXPECT_SOON if run.expect is not None:
            why = (
                f"it did not start in time: most runs before it took longer than what was left of "
                f"{format_duration(run.expect)} since it was asked for (expect)"
            )
            return f"run {run.id} will be late: {why}"
        case Lateness.EXPECT if run.expect is not None:
            why = f"it has not ended {format_duration(run.expect)} after it was asked for (expect)"
        case Lateness.WARN_AFTER | Lateness.EXPECT | Lateness.EXPECT_SOON:
            why = what.value
    return f"run {run.id} is late: {why}"


def task_late_words(run: Run, task: TaskRun, attempt: int) -> str:
    """Text about a task."""
    longest = format_duration(task.spec.warn_after) if task.spec.warn_after is not None else ""
    what = f"attempt {attempt} of task {task.spec.name}" if task.spec.kind.uses_worker else task.spec.name
    does = "has lasted" if task.spec.kind.uses_worker else "has waited"
    return f"run {run.id} is late: {what} {does} longer than {longest} (warn_after)"
