"""Updates runs, and queues the keys that a change affects."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType

from nimbus.domain.attempts.slots import Slots
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.ids import AttemptId, BackfillId, PipelineName, RunId, TaskName
from nimbus.domain.runs.child_runs import child_of, is_under_way
from nimbus.domain.runs.children import ItemState, Parent
from nimbus.domain.runs.lifecycle import must_stop
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import TaskRun, TaskState
from nimbus.domain.starts.places import needed
from nimbus.engine.decision import Built, Jobs
from nimbus.engine.ready import Needs, ReadyTasks
from nimbus.engine.run_queue import RunQueue
from nimbus.engine.state.attempts import OpenAttempts
from nimbus.engine.state.commands import Commands
from nimbus.engine.state.tasks import WaitingTasks
from nimbus.engine.work_queue import Instant, Key, WorkQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The state of a final run in the engine's memory."""

    pipeline: PipelineName
    state: RunState
    reason: str
    finished_at: datetime
    parent: Parent | None
    attempts: dict[AttemptId, None]
    """Attempts that are still in ZooKeeper. Changed in place: a run can have tens of thousands."""
    archiving: bool = False
    """True: the archive was asked to store the run."""
    archived: bool = False


def finished(run: Run, before: Finished | None) -> Finished:
    """The state of a run that is final. `before`: its earlier state, whose archiving goes on."""
    attempts = dict.fromkeys(
        AttemptId(run.id, name, number)
        for name, task in run.tasks.items()
        if task.spec.children is None and task.attempts
        for number in range(task.attempts[0].number if task.spec.keeps_running else 1, task.tried + 1)
    )
    return Finished(
        pipeline=run.pipeline,
        state=run.state,
        reason=run.reason,
        finished_at=run.finished_at or run.created_at,
        parent=run.parent,
        attempts=attempts,
        archiving=before is not None and before.archiving,
        archived=before is not None and before.archived,
    )


TASKS_AT_ONCE = 200
"""Tasks of a new or resumed run that may begin and are put at once, in about 1 ms. Others follow later."""


class LiveCounts:
    """Counts of runs that are not final. The cost of a change does not depend on how much is live."""

    def __init__(self) -> None:
        self.runs: Counter[RunState] = Counter()
        self.tasks: Counter[TaskState] = Counter()

    def moved(self, before: Run | None, after: Run | None) -> None:
        """Count a live run that is new (`before` is None), changed, or no longer live (`after` is None)."""
        if before is not None:
            self.runs[before.state] -= 1
        if after is not None:
            self.runs[after.state] += 1
        for state, count in () if before is None else before.tasks.counts.items():
            self.tasks[state] -= count
        for state, count in () if after is None else after.tasks.counts.items():
            self.tasks[state] += count


class Runs:
    """Runs, their tasks and child runs, until they are removed from ZooKeeper."""

    def __init__(
        self,
        work: WorkQueue,
        live: dict[RunId, Run],
        queue: RunQueue,
        ready: ReadyTasks,
        builds: Jobs[Key, Built],
        attempts: OpenAttempts,
        tasks: WaitingTasks,
        commands: Commands,
    ) -> None:
        self._work = work
        self._queue = queue
        self.ready = ready
        self._builds = builds
        self._attempts = attempts
        self._tasks = tasks
        self._commands = commands
        self.live = live
        """Runs that are not final."""
        self.counts = LiveCounts()
        self.finished: dict[RunId, Finished] = {}
        self.last_success: dict[PipelineName, datetime] = {}
        """End of each pipeline's last successful run whose record this leader has seen. Runs of backfills do
        not count, because they process old data."""
        self.newest_number = 0
        """Largest number of a run, or sequence of a version, that this leader has seen."""
        self.read: dict[RunId, Run] | None = {}
        """All runs that were read or changed so far, including final ones; None: everything is read."""
        self._of: defaultdict[PipelineName, set[RunId]] = defaultdict(set)
        self._of_backfill: defaultdict[BackfillId, set[RunId]] = defaultdict(set)
        self._needs: dict[RunId, Needs] = {}
        self.left: deque[tuple[RunId, TaskName]] = deque()
        """Tasks of large runs that may begin, and that are not put yet."""

    def __contains__(self, run: RunId) -> bool:
        return run in self.live or run in self.finished

    def of(self, pipeline: PipelineName) -> Collection[RunId]:
        """Runs of a pipeline that are not final."""
        return self._of.get(pipeline, ())

    def of_backfill(self, backfill: BackfillId) -> Collection[RunId]:
        """Runs of a backfill that are not final."""
        return self._of_backfill.get(backfill, ())

    def attempt_removed(self, attempt: AttemptId) -> None:
        """Note that an attempt is not in ZooKeeper any more. Of a live run, nothing is noted."""
        if (final := self.finished.get(attempt.run)) is not None:
            final.attempts.pop(attempt, None)

    def check_needs(self, run: RunId) -> None:
        """Raise LookupError if a task needs one that the run does not have, so it would wait for ever."""
        if unknown := self.live[run].tasks.unknown:
            raise LookupError(f"tasks need some that the run does not have: {unknown}")

    def note_number(self, dataset: Dataset) -> None:
        """Give later runs and versions larger numbers than a publication has got."""
        if (newest := dataset.newest) is not None:
            self.newest_number = max(self.newest_number, newest.number, newest.sequence)

    def put(self, run: Run, now: Instant, slots: Mapping[AttemptId, Slots] = MappingProxyType({})) -> None:
        """Add or replace a run. Of a final run, only what is needed to archive and remove it is kept.

        `slots`: those of its open attempts, if they were read; missing ones are empty.
        """
        if self.read is not None:
            self.read[run.id] = run
        before = self.live.get(run.id)
        self.newest_number = max(self.newest_number, _newest_number(run, before))
        if before is not None:
            self._attempts.note_ends(before, run)
        if run.state.is_final:
            self._put_finished(run)
            return
        marked = before is not None and before.state is RunState.QUEUED and before.tasks is not run.tasks
        if before is None or marked:  # for a queued run `_put_tasks` does not report ended tasks
            self._needs[run.id] = Needs(run)
        if before is None:
            self._of[run.pipeline].add(run.id)
            if run.backfill is not None:
                self._of_backfill[run.backfill].add(run.id)
        self.live[run.id] = run
        self.counts.moved(before, run)
        if before is None or marked or _in_queue(before) != _in_queue(run):
            self._put_in_queue(run)
        if run.warn_after is not None or run.expect is not None:
            self._work.add(Key("late", run.id))
        if before is None or _where(before) != _where(run):
            self._work.add(Key("run", run.id))
            self._enqueue_open(run)
        self._put_tasks(before, run, now, slots)

    def count_again(self, pipeline: PipelineName) -> None:
        """Count the live runs of a pipeline, and their tasks, for its new team."""
        for run in map(self.live.__getitem__, sorted(self.of(pipeline))):
            self._put_in_queue(run)
            for name, task in run.tasks.items():
                if (run.id, name) in self.ready:
                    self.ready.add(run, task)
                if (attempt := task.open_attempt) is not None:
                    self._attempts.count(AttemptId(run.id, name, attempt.number), attempt, task.spec)

    def _put_in_queue(self, run: Run) -> None:
        parked = Key("run", run.id) in self._work.parked
        self._queue.put(run, needed(run), may_start=run.paused is None and not parked)

    def _put_tasks(
        self, before: Run | None, run: Run, now: Instant, slots: Mapping[AttemptId, Slots]
    ) -> None:
        known = None if before is None or before.state is RunState.QUEUED else before.tasks
        needs = self._needs[run.id]
        ready = list[TaskName]()
        for was, task in run.tasks.changes_since(known):
            if was is not None or task.state is not TaskState.WAITING:
                self._put_task(run, was, task, now, slots)
                continue
            if task.spec.warn_after is not None:
                self._work.add(Key("late", run.id, task.spec.name))
            if needs.met(task.spec.name):
                ready.append(task.spec.name)
        self._put_ready(run, ready)
        if before is not None:
            self._put_again(before, run)

    def _put_ready(self, run: Run, tasks: Sequence[TaskName]) -> None:
        for name in tasks[:TASKS_AT_ONCE]:
            self._tasks.put(run, run.tasks[name])
        self.left.extend((run.id, name) for name in tasks[TASKS_AT_ONCE:])

    def put_left(self) -> None:
        """Put the next tasks of large runs."""
        for _ in range(min(TASKS_AT_ONCE, len(self.left))):
            run_id, name = self.left.popleft()
            run = self.live.get(run_id)
            task = None if run is None else run.tasks.get(name)
            if run is not None and task is not None and task.state is TaskState.WAITING:
                self._tasks.put(run, task)

    def _put_again(self, before: Run, run: Run) -> None:
        """Put the tasks of a run that have not changed, and whose run has."""
        if before.pins is not run.pins:
            for name, task in run.tasks.items():
                if task.spec.uses and self._needs[run.id].met(name):
                    self._tasks.put(run, task)
        if before.paused != run.paused or (before.opens_tasks and run.state is RunState.QUEUED):
            may_begin = list[TaskName]()
            for name, task in run.tasks.items():
                if run.opens_tasks and task.state is TaskState.WAITING and self._needs[run.id].met(name):
                    may_begin.append(name)
                elif self._needs[run.id].met(name):  # at once: nothing begins any more
                    self._tasks.put(run, task)
                if is_under_way(task):
                    self._enqueue_children(run, task)
            self._put_ready(run, may_begin)

    def _enqueue_open(self, run: Run) -> None:
        if run.verdict is None:
            return  # nothing must stop
        for attempt in run.open_attempts():
            if must_stop(run, attempt.task):
                self._work.add(Key.of_attempt(attempt))
        for task in run.tasks.in_order():
            if is_under_way(task) and must_stop(run, task.spec.name):
                self._enqueue_children(run, task)

    def _put_task(
        self,
        run: Run,
        was: TaskRun | None,
        task: TaskRun,
        now: Instant,
        slots: Mapping[AttemptId, Slots],
    ) -> None:
        old = None if was is None else was.open_attempt
        new = task.open_attempt
        if old is not None and (new is None or new.number != old.number):
            self._attempts.forget(AttemptId(run.id, task.spec.name, old.number))
        if new is not None and (old is None or new.number != old.number):
            attempt = AttemptId(run.id, task.spec.name, new.number)
            self._attempts.put(attempt, new, task.spec, slots.get(attempt, Slots()), now)
            most = run.max_parallel_tasks
            if most is not None and run.tasks.count(TaskState.RUNNING) >= most:
                self.ready.open_pools_of(run.id)
        elif old is not None and new is not None and new.ordered_to != old.ordered_to:
            self._attempts.move(AttemptId(run.id, task.spec.name, new.number), new, task.spec)
        if task.spec.warn_after is not None:
            self._work.add(Key("late", run.id, task.spec.name))
        if task.children is not None and is_under_way(task):
            self._put_children(run, was, task)
        needs = self._needs[run.id]
        if _waits_or_waited(was, task) and needs.met(task.spec.name):
            self._tasks.put(run, task)
        if task.state.is_final and was is not None and not was.state.is_final:
            for name in needs.ended(task.spec.name):
                self._tasks.put(run, run.tasks[name])

    def _enqueue_children(self, run: Run, task: TaskRun) -> None:
        """Queue a task that waits for child runs, and these runs, which follow their parent."""
        self._work.add(Key("children", run.id, task.spec.name))
        for index in () if task.children is None else task.children.having(ItemState.OPEN):
            self._work.add(Key("run", child_of(run, task.spec.name, index) or run.id))

    def _put_children(self, run: Run, was: TaskRun | None, task: TaskRun) -> None:
        """Queue a task whose items moved; after reading the run, also all open items."""
        key = Key("children", run.id, task.spec.name)
        self._work.add(key)
        if was is None and task.children is not None:
            for index in task.children.having(ItemState.OPEN):
                self._work.add(Key("child", run.id, task.spec.name, index))

    def _put_finished(self, run: Run) -> None:
        self._forget_live(run.id)
        self.finished[run.id] = finished(run, self.finished.get(run.id))
        if run.state is RunState.SUCCEEDED and run.backfill is None and run.finished_at is not None:
            known = self.last_success.get(run.pipeline, run.finished_at)
            self.last_success[run.pipeline] = max(known, run.finished_at)
        self._work.add(Key("finished", run.id))
        self._commands.enqueue_reruns(run.id)
        self._tasks.enqueue_awaiting(run.pipeline)
        for read in run.reads:
            if read.new:  # what it has pinned is read, or still new
                self._tasks.enqueue_readers(read.dataset)
        if run.parent is not None:
            self._work.add(Key("child", run.parent.run, run.parent.task, run.parent.index))

    def forget(self, run_id: RunId) -> None:
        """Remove a run that is no longer in ZooKeeper."""
        self._forget_live(run_id)
        if self.read is not None:
            self.read.pop(run_id, None)
        self.finished.pop(run_id, None)
        self._work.forget(Key("finished", run_id))

    def _forget_live(self, run_id: RunId) -> None:
        run = self.live.pop(run_id, None)
        if run is None:
            return
        self.counts.moved(run, None)
        self._work.forget(Key("run", run_id))
        self._work.forget(Key("late", run_id))
        self._queue.discard(run_id)
        self._of[run.pipeline].discard(run_id)
        if run.backfill is not None:
            self._of_backfill[run.backfill].discard(run_id)
            self._work.add(Key("backfill", run.backfill))
        del self._needs[run_id]
        for name, task in run.tasks.items():
            self._tasks.forget(run, task)
            if task.spec.warn_after is not None:
                self._work.forget(Key("late", run_id, name))
            if task.spec.children is not None:
                self._work.forget(Key("children", run_id, name))
                self._builds.forget(Key("children", run_id, name))
            if (attempt := task.open_attempt) is not None:
                self._attempts.forget(AttemptId(run_id, name, attempt.number))

    def archiving(self, run_id: RunId) -> None:
        """Record that a run is being archived."""
        self.finished[run_id] = replace(self.finished[run_id], archiving=True)

    def archived(self, run_id: RunId) -> None:
        """Record that history has a run."""
        run = self.finished.get(run_id)
        if run is not None and run.archiving:  # else an earlier term started it
            self.finished[run_id] = replace(run, archiving=False, archived=True)
            self._work.add(Key("finished", run_id))

    def keep_from(self, before: Runs) -> None:
        """Copy what ZooKeeper does not have."""
        self.finished = dict(before.finished)
        self.last_success = dict(before.last_success)
        self.newest_number = max(self.newest_number, before.newest_number)

    def keep_read(self, pipelines: Container[PipelineName]) -> None:
        """Drop what was kept about runs and pipelines that were not read."""
        runs, self.read = self.read or {}, None
        self._attempts.workers.count_refusals(runs.values())
        self._attempts.await_back_offs()
        self.finished = {
            run_id: kept
            for run_id, kept in self.finished.items()
            if run_id in runs and runs[run_id].state.is_final
        }
        self.last_success = {name: at for name, at in self.last_success.items() if name in pipelines}


def _newest_number(run: Run, before: Run | None) -> int:
    """The largest number of a run, or sequence of what it has published since."""
    if not run.tasks.publishes:
        return run.number
    changed = run.tasks.changes_since(None if before is None else before.tasks)
    return max((run.number, *(task.sequence for _, task in changed)))


def _waits_or_waited(was: TaskRun | None, task: TaskRun) -> bool:
    """True when a task begins or stops to wait."""
    before = None if was is None else was.state
    return before is not task.state and (before is TaskState.WAITING or task.state is TaskState.WAITING)


def _in_queue(run: Run) -> tuple[object, ...]:
    """The fields whose change moves the run in the queue, or frees or takes places."""
    return run.state, run.paused, run.holds


def _where(run: Run) -> tuple[object, ...]:
    """The fields whose change puts the whole run in the work queue."""
    return run.state, run.verdict, run.deadline
