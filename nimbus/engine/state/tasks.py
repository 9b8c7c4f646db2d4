"""Updates waiting tasks: for a slot, for rendering, for data, or for runs of other pipelines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime

from nimbus.domain.data.publications import Version
from nimbus.domain.data.reads import Lacking, awaits_inputs, to_pin
from nimbus.domain.ids import DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.pipeline import TaskSpec
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskRun, TaskState
from nimbus.domain.starts.timing import gives_up_at, not_before, queue_ends_at
from nimbus.domain.starts.upstream import upstream_of
from nimbus.domain.starts.waits import DataProbe, PipelineWait, ProbeResult, faults_of, probes_of
from nimbus.engine.decision import Jobs, Refusal
from nimbus.engine.probes import Probes
from nimbus.engine.ready import ReadyTasks
from nimbus.engine.work_queue import Instant, Key, WorkQueue

Pins = Mapping[str, tuple[Version, ...]]
"""Versions by read."""


class WaitingTasks:
    """Tasks whose needs are met and that have not started."""

    def __init__(self, work: WorkQueue, live: Mapping[RunId, Run], ready: ReadyTasks) -> None:
        self._work = work
        self._live = live
        self._ready = ready
        self.renderings = Jobs[Key, TaskSpec | Refusal]()
        """Templates of ready tasks, rendered by another thread."""
        self.pins = Jobs[Key, Pins | Refusal | Lacking]()
        """Versions that ready tasks read, found by another thread."""
        self._finders: dict[RunId, TaskName] = {}
        """The task of a run that looks up what all its tasks read of others."""
        self._reading: defaultdict[DatasetName, set[Key]] = defaultdict(set)
        """Ready tasks that wait for a dataset."""
        self.probes = Probes()
        self._awaiting: defaultdict[PipelineName, set[Key]] = defaultdict(set)
        """Tasks that wait for runs of a pipeline."""

    def rendered(self, run: RunId, task: TaskRun) -> TaskSpec:
        """A ready task with rendered templates.

        Raises LookupError: its templates read results of other tasks, and are not rendered.
        """
        spec = self.spec_of(run, task)
        if not isinstance(spec, TaskSpec):
            raise LookupError(f"task {task.spec.name} of run {run} is not rendered")  # noqa: TRY004 - no type
        return spec

    def spec_of(self, run: RunId, task: TaskRun) -> TaskSpec | Refusal | None:
        """The same; None: its templates are not rendered yet."""
        if not task.spec.reads:
            return task.spec
        return self.renderings.results.get(Key("rendering", run, task.spec.name))

    def put(self, run: Run, task: TaskRun) -> None:
        """Queue a task whose needs are met, now or after its pause; or remove it from the queue."""
        key = Key("task", run.id, task.spec.name)
        waits = task.state is TaskState.WAITING and run.opens_tasks
        if not task.spec.kind.uses_worker:
            self.put_wait(run, task.spec, waits=waits)
        elif not waits:
            self._ready.discard(run.id, task.spec.name)
            self._work.forget(key)
            if task.state is not TaskState.RUNNING:
                self._work.forget(Key("children", run.id, task.spec.name))
            self._forget(run, task)
        else:
            self._put_queue_timeout(run.id, task, queue_ends_at(run, task))
            if (moment := not_before(run, task)) is not None:
                self._work.add_at(key, moment)
            else:
                self.add_ready(run.id, task.spec.name)

    def _put_queue_timeout(self, run: RunId, task: TaskRun, due: datetime | None) -> None:
        if task.spec.queue_timeout is None:
            return
        key = Key("overdue", run, task.spec.name)
        if due is None:
            self._work.forget(key)
        else:
            self._work.add_at(key, due)

    def put_wait(self, run: Run, spec: TaskSpec, *, waits: bool) -> None:
        """Watch, or no longer watch, what a task waits for that no worker runs."""
        key = Key("wait", run.id, spec.name)
        pipelines = {upstream_of(wait, run) for wait in spec.waits_for if isinstance(wait, PipelineWait)}
        if not waits:
            self._work.forget(key)
            self.probes.forget(key)
            for name in pipelines:
                self._awaiting[name].discard(key)
            return
        self._work.add(key)
        if spec.warn_after is not None:
            self._work.add(Key("late", run.id, spec.name))
        for name in pipelines:
            self._awaiting[name].add(key)
        if not faults_of(spec.waits_for, spec.args) and (probes := probes_of(spec.waits_for, spec.args)):
            self.probes.want(key, probes, gives_up_at(run, run.tasks[spec.name]))

    def enqueue_awaiting(self, name: PipelineName) -> None:
        """Queue the tasks that wait for runs of a pipeline."""
        for key in sorted(self._awaiting.get(name, ())):
            self._work.add(key)

    def data_seen(self, probe: DataProbe, seen: ProbeResult, now: Instant) -> None:
        """Apply the result of a probe."""
        for key in self.probes.seen(probe, seen, now):
            self._work.add(key)

    def add_ready(self, run_id: RunId, name: TaskName) -> None:
        """Queue a task whose needs are met, or what it needs first."""
        run = self._live.get(run_id)
        if run is None or Key("run", run_id) in self._work.parked:
            return
        task = run.tasks[name]
        spec = self.spec_of(run_id, task)
        if not (isinstance(spec, TaskSpec) and spec.is_wanted):
            self._work.add(Key("rendering", run_id, name))
        elif reads := to_pin(run, name) if task.spec.uses else ():
            for read in reads:
                self._reading[read.dataset].add(Key("pins", run_id, name))
            self._work.add(Key("pins", run_id, name))
        elif task.spec.children is not None:
            self._work.add(Key("children", run_id, name))
        else:
            self._ready.add(run, task)

    def enqueue_readers(self, dataset: DatasetName) -> None:
        """Queue the ready tasks that wait for a dataset."""
        for key in sorted(self._reading.get(dataset, ())):
            self._work.add(key)

    def finder(self, run: RunId) -> TaskName | None:
        """The task that looks up what the tasks of a run read of others; None: none does yet."""
        return self._finders.get(run)

    def finding(self, run: Run, task: TaskName) -> None:
        """Record that the versions that a task reads are looked up."""
        self.pins.under_way.add(Key("pins", run.id, task))
        if awaits_inputs(run, task):
            self._finders[run.id] = task

    def versions_found(self, run: RunId, task: TaskName, result: Pins | Refusal | Lacking) -> None:
        """Record the versions that a task reads."""
        key = Key("pins", run, task)
        if self.pins.finish(key, result):
            self._work.add(key)

    def finding_failed(self, run: RunId, task: TaskName, again_s: float) -> None:
        """Look for the versions that a task reads again at a time of the clock that counts suspend."""
        key = Key("pins", run, task)
        if self.pins.finish(key, None):
            self._work.add_after(key, again_s)

    def task_rendered(self, run: RunId, task: TaskName, result: TaskSpec | Refusal | None) -> None:
        """Record the result of rendering; None: it failed for now, and is tried again."""
        if self.renderings.finish(Key("rendering", run, task), result):
            self.add_ready(run, task)

    def forget(self, run: Run, task: TaskRun) -> None:
        """Remove a task of a run that is over."""
        name = task.spec.name
        self._ready.discard(run.id, name)
        self._work.forget(Key("task", run.id, name))
        self._forget(run, task)
        if not task.spec.kind.uses_worker:
            self.put_wait(run, task.spec, waits=False)

    def _find_by_another(self, run: Run, finder: TaskName) -> None:
        """Queue the other reading tasks of a run if the one that looked up pinned nothing."""
        del self._finders[run.id]
        for read in run.reads if awaits_inputs(run, finder) else ():
            for key in [reader for reader in self._reading[read.dataset] if reader.run == run.id]:
                self._work.add(key)

    def _forget(self, run: Run, task: TaskRun) -> None:
        run_id = run.id
        self._put_queue_timeout(run_id, task, None)
        if task.spec.uses:
            key = Key("pins", run_id, task.spec.name)
            self._work.forget(key)
            self.pins.forget(key)
            for read in run.reads:
                self._reading[read.dataset].discard(key)
            if self._finders.get(run_id) == task.spec.name:
                self._find_by_another(run, task.spec.name)
        if task.spec.reads:
            key = Key("rendering", run_id, task.spec.name)
            self._work.forget(key)
            self.renderings.forget(key)
