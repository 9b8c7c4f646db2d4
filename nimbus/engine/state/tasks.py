"""Updates waiting tasks: for a slot, for rendering, for data, or for runs of other pipelines."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.earliest import gives_up_at, not_before, queue_ends_at
from nimbus.domain.ids import PipelineName, RunId, TaskName
from nimbus.domain.pipeline import TaskSpec
from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskRun, TaskState
from nimbus.domain.upstream import upstream_of
from nimbus.domain.waits import Look, PipelineWait, Seen, faults_of, looks_of
from nimbus.engine.agenda import (
    Instant,
    about_children,
    about_late,
    about_overdue,
    about_rendering,
    about_run,
    about_task,
    about_wait,
)
from nimbus.engine.refusal import Refusal
from nimbus.engine.state.facts import Facts


class WaitingTasks(Facts):
    """Tasks whose needs are met and that have not started."""

    def _put_readiness(self, run: Run, task: TaskRun) -> None:
        """Queue a task whose needs are met, now or after its pause; or remove it from the queue."""
        subject = about_task(run.id, task.spec.name)
        waits = task.state is TaskState.WAITING and run.opens_tasks
        if not task.spec.kind.uses_worker:
            self._put_wait(run, task.spec, waits=waits)
        elif not waits:
            self.ready.discard(run.id, task.spec.name)
            self.agenda.forget(subject)
            if task.state is not TaskState.RUNNING:
                self.agenda.forget(about_children(run.id, task.spec.name))
            self._put_queue_timeout(run.id, task, None)
            self._forget_rendering(run.id, task)
        else:
            self._put_queue_timeout(run.id, task, queue_ends_at(run, task))
            if (moment := not_before(run, task)) is not None:
                self.agenda.look_at(subject, moment)
            else:
                self._add_ready(run.id, task.spec.name)

    def _put_queue_timeout(self, run: RunId, task: TaskRun, due: datetime | None) -> None:
        if task.spec.queue_timeout is None:
            return
        subject = about_overdue(run, task.spec.name)
        if due is None:
            self.agenda.forget(subject)
        else:
            self.agenda.look_at(subject, due)

    def _put_wait(self, run: Run, spec: TaskSpec, *, waits: bool) -> None:
        subject = about_wait(run.id, spec.name)
        pipelines = {upstream_of(wait, run) for wait in spec.waits_for if isinstance(wait, PipelineWait)}
        if not waits:
            self.agenda.forget(subject)
            self.looks.forget(subject)
            for name in pipelines:
                self._awaiting[name].discard(subject)
            return
        self.agenda.add(subject)
        if spec.warn_after is not None:
            self.agenda.add(about_late(run.id, spec.name))
        for name in pipelines:
            self._awaiting[name].add(subject)
        if not faults_of(spec.waits_for, spec.args) and (looks := looks_of(spec.waits_for, spec.args)):
            self.looks.want(subject, looks, gives_up_at(run, run.tasks[spec.name]))

    def _look_at_awaiting(self, name: PipelineName) -> None:
        """Put the tasks that wait for runs of a pipeline on the agenda."""
        for subject in sorted(self._awaiting.get(name, ())):
            self.agenda.add(subject)

    def data_seen(self, look: Look, seen: Seen, now: Instant) -> None:
        """Apply the result of a look-up of data."""
        for subject in self.looks.seen(look, seen, now):
            self.agenda.add(subject)

    def _add_ready(self, run_id: RunId, name: TaskName) -> None:
        run = self.runs.get(run_id)
        if run is None or about_run(run_id) in self.set_aside:
            return
        task, subject = run.tasks[name], about_rendering(run_id, name)
        found = self.rendered.get(subject) if task.spec.reads else task.spec
        if not (isinstance(found, TaskSpec) and found.is_wanted):
            self.agenda.add(subject)
        elif task.spec.children is not None:
            self.agenda.add(about_children(run_id, name))
        else:
            self.ready.add(run, task)

    def task_rendered(self, run: RunId, task: TaskName, result: TaskSpec | Refusal | None) -> None:
        """Record the result of rendering; None: it failed for now, and is tried again."""
        subject = about_rendering(run, task)
        if subject in self.rendering:  # else it no longer waits, or an earlier reign started it
            self.rendering.discard(subject)
            if result is not None:
                self.rendered[subject] = result
            self._add_ready(run, task)

    def _forget_rendering(self, run_id: RunId, task: TaskRun) -> None:
        if task.spec.reads:
            subject = about_rendering(run_id, task.spec.name)
            self.agenda.forget(subject)
            self.rendering.discard(subject)
            self.rendered.pop(subject, None)
