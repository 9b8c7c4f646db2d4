"""The leader's state, with the indexes for its rules. Only the engine thread changes it.

`apply` applies a decision's writes, `put_*` applies records that were read. The cost depends only on the
changed records. Each call puts the affected subjects on the agenda.

`facts` holds the records, the indexes and the queries. Each other module updates one kind of subject; the
bases of its class are the kinds that are updated with it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from nimbus.domain import writes as w
from nimbus.engine.agenda import ABOUT_TERM, Instant, Subject, about_rendering
from nimbus.engine.decision import (
    ArchiveOutcomes,
    ArchiveRun,
    ArchiveTerms,
    BuildRun,
    Decision,
    LookAt,
    Nothing,
    PrepareRelease,
    RenderTask,
    ResignLeadership,
    SendAlert,
    StorePurge,
)
from nimbus.engine.state.alerts import Alerts
from nimbus.engine.state.facts import Built
from nimbus.engine.state.runs import Runs
from nimbus.engine.state.terms import Terms

__all__ = ["Built", "State"]


class State(Runs, Alerts, Terms):
    """The whole state that rules read. They never change it."""

    def apply(self, decision: Decision, now: Instant) -> None:
        """Apply a decision to the state."""
        for write in decision.writes:
            self._apply_write(write, now)
        for effect in decision.effects:
            match effect:
                case PrepareRelease(release):
                    self.preparing[release.pipeline] = release
                case ArchiveRun() | StorePurge():
                    self._apply_to_archive(effect)
                case BuildRun(subject, _):
                    self.building.add(subject)
                case RenderTask(run, task):
                    self.rendering.add(about_rendering(run.id, task))
                case LookAt() | ArchiveOutcomes() | ArchiveTerms():
                    pass  # not part of a decision: see `Looks` and `Reign.tend`
                case ResignLeadership():
                    self.resigning = True
                case SendAlert(alert):
                    self.outbox.started.add(alert.claim)
                case _:
                    assert_never(effect)

    def _apply_to_archive(self, effect: ArchiveRun | StorePurge) -> None:
        match effect:
            case ArchiveRun(run_id):
                self.finished[run_id] = replace(self.finished[run_id], archiving=True)
            case StorePurge(command):
                self.purges.storing.add(command)

    def _apply_write(self, write: w.Write, now: Instant) -> None:
        match write:
            case (
                w.CreateAttempt()
                | w.Assign()
                | w.Unassign()
                | w.WriteClaim()
                | w.WriteEnd()
                | w.RequestStop()
            ):
                pass  # their consequences are in the run's record
            case w.PutRun(run, _) | w.CreateRun(run):
                self.put_run(run, now)
            case w.RemoveRun(run_id):
                self.forget_run(run_id)
            case w.RemoveAttempt(attempt):
                self.finished[attempt.run].attempts.pop(attempt, None)
            case w.CreatePipeline(record) | w.PutPipeline(record, _):
                self.put_pipeline(record)
            case w.RemovePipelineRecord(record):
                self.forget_pipeline(record.name)
            case w.ConsumeCommand(outcome):
                self.drop_command(outcome.command)
            case (
                w.PutIntervals()
                | w.PutBackfill()
                | w.RemoveBackfill()
                | w.PutAbdication()
                | w.CreateTerm()
                | w.PutTerm()
                | w.PutSettings()
                | w.RaiseSchema()
            ):
                self._apply_of_cluster(write, now)
            case w.CreateAlert() | w.PutAlert() | w.RemoveAlert() | w.PutHealth() | w.RemoveHealth():
                self._apply_alert(write)

    def _apply_of_cluster(self, write: w.ClusterWrite, now: Instant) -> None:
        match write:
            case w.PutIntervals(pipeline, index, _):
                self.put_intervals(pipeline, index)
            case w.PutBackfill(backfill, _):
                self.put_backfill(backfill)
            case w.RemoveBackfill(backfill):
                self.forget_backfill(backfill.id)
            case w.PutAbdication(abdication):
                if self.abdication is not None and self.abdication.to:
                    self.resigning = False  # the named successor has left the queue, so we lead on
                self.put_abdication(abdication)
            case w.CreateTerm(term) | w.PutTerm(term):
                self._put_term(term)
            case w.PutSettings(settings):
                self.put_settings(settings, now)
            case w.RaiseSchema(schema):
                self.schema, self.none_older_since = schema, None

    def keep_from(self, before: State) -> None:
        """Copy from `before` what ZooKeeper does not have, before everything is read again."""
        self.quarantined = before.quarantined
        self.terms = before.terms
        self.set_aside = dict(before.set_aside)
        self.resigning = before.resigning
        self.none_older_since = before.none_older_since
        self.preparing = dict(before.preparing)
        self.prepared = dict(before.prepared)
        self.purges = before.purges
        self.building = set(before.building)
        self.built = dict(before.built)
        self.rendering = set(before.rendering)
        self.rendered = dict(before.rendered)
        self.finished = dict(before.finished)
        self.last_success = dict(before.last_success)
        self.silent = dict(before.silent)
        self.outbox.keep_from(before.outbox)

    def take_census(self) -> None:
        """Note that everything is read. Drop what was kept about subjects that no longer exist."""
        self.census_taken = True
        if self.terms is not None:
            self.agenda.add(ABOUT_TERM)
        runs, self._read = self._read, {}
        self.workers.count_refusals(runs.values())
        self._await_back_offs()
        self.preparing = {name: kept for name, kept in self.preparing.items() if name in self.lines}
        self.prepared = {name: kept for name, kept in self.prepared.items() if name in self.lines}
        self.purges = self.purges.only(self.commands)
        self.building = {subject for subject in self.building if self._waits(subject)}
        self.built = {subject: kept for subject, kept in self.built.items() if self._waits(subject)}
        self.rendering = {subject for subject in self.rendering if subject.run in self.runs}
        self.rendered = {subject: kept for subject, kept in self.rendered.items() if subject.run in self.runs}
        self.finished = {
            run_id: kept
            for run_id, kept in self.finished.items()
            if run_id in runs and runs[run_id].state.is_final
        }
        self.last_success = {name: at for name, at in self.last_success.items() if name in self.pipelines}
        self.silent = {attempt: found for attempt, found in self.silent.items() if attempt in self.slots}

    def _waits(self, subject: Subject) -> bool:
        if subject.kind == "children":
            return subject.run in self.runs
        if subject.kind == "backfill":
            return subject.backfill in self.backfills
        return subject.command in self.commands or subject.pipeline in self.pipelines

    def dismiss(self, subject: Subject) -> None:
        """Remove a subject that is set aside from the agenda. Reading it again brings it back."""
        if subject.kind == "task":
            self.ready.discard(subject.run, subject.task)
        elif subject.kind == "queue":
            self.queue.withdraw(subject.run)
        else:
            self.agenda.done(subject)

    def postpone(self, subject: Subject, until: Nothing) -> None:
        """Apply the answer that there is nothing to decide about a subject now."""
        if subject.kind == "task":
            self.ready.close(subject.run, subject.task, until.gates)
            return
        if subject.kind == "queue":
            self.queue.close()
            return
        self.agenda.done(subject)
        if subject.kind == "alert" and until.at is None:
            self.outbox.hold(subject.name)
        if until.at is not None:
            self.agenda.look_at(subject, until.at)
        if until.after_s is not None:
            self.agenda.look_after(subject, until.after_s)

    def wake(self, now: Instant) -> None:
        """Put the subjects of due timers on the agenda."""
        for subject in self.agenda.pop_due(now):
            match subject.kind:
                case "task":
                    self._add_ready(subject.run, subject.task)
                case "worker":
                    self.ready.reopen()
                case _:
                    self.agenda.add(subject)
