"""The laws of runs: how a record may change from one write to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from math import inf
from typing import TYPE_CHECKING

from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.commands import DecideApproval
from nimbus.domain.ids import AttemptId, PipelineName, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.pipeline import FailureClass, TaskKind, TriggerRule
from nimbus.domain.runs.child_runs import NO_WORKER
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Outcome, TaskRun, TaskState
from nimbus.domain.starts.places import run_rank
from nimbus.domain.starts.timing import gives_up_at, queue_ends_at
from nimbus.domain.starts.waits import DataProbe, probes_of
from tests.nimbus.simulation import places
from tests.nimbus.simulation.catalog import MAX_RUNNING
from tests.nimbus.simulation.laws import Law, hold

if TYPE_CHECKING:
    from tests.nimbus.simulation.world import World


_INFRASTRUCTURE = (Outcome.LOST, Outcome.FENCED, Outcome.REFUSED)


class RunLaws:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.all: dict[RunId, Run] = {}
        """The last written version of every run."""
        self.live: dict[RunId, Run] = {}
        """Runs in ZooKeeper."""
        self.found: dict[DataProbe, float] = {}
        """When a leader last found the data that tasks wait for."""
        self._created_s: dict[RunId, float] = {}
        self.queued: set[RunId] = set()
        self.queued_again: set[RunId] = set()
        """Runs that waited without a place, and were queued when they needed one."""

    def written(
        self,
        write: w.CreateRun | w.PutRun | w.RemoveRun,
        pipelines: Mapping[PipelineName, PipelineRecord],
        resumed: Set[RunId],
    ) -> None:
        """Record one write. `resumed`: runs that a command of the same transaction resumes."""
        match write:
            case w.CreateRun(run):
                self._reuses_successes(run)
                self.all[run.id] = self.live[run.id] = run
                self._created_s[run.id] = self._world.time.s
                if run.state is RunState.RUNNING:
                    self._started(run, pipelines)
                elif run.state is RunState.QUEUED:
                    self.queued.add(run.id)
            case w.PutRun(run):
                before = self.live[run.id]
                self._moved(before, run)
                self._pause_holds(before, run, resumed)
                self.all[run.id] = self.live[run.id] = run
                for was, task in run.tasks.changes_since(before.tasks):
                    if task.open_attempt is not None and (was is None or was.open_attempt is None):
                        self._pools_hold(task)
                self._places_fit(before, run, pipelines)
            case w.RemoveRun(run_id):
                run = self.live.pop(run_id)
                kept = self._world.storage.history.get(run_id)
                hold(Law.ARCHIVED, run == kept, run_id, "was removed, and history has", kept)

    def _reuses_successes(self, run: Run) -> None:
        if run.rerun_of is not None:
            earlier = self.all[run.rerun_of]
            hold(Law.RERUN, earlier.state.is_final, run.id, "begins before the end of", earlier.id)
            kept = earlier.logical_date, earlier.parameters, earlier.data_interval
            hold(Law.RERUN, kept == (run.logical_date, run.parameters, run.data_interval), run.id, "differs")
        for name, task in run.tasks.items():
            if task.reused is None:
                continue
            was, reused = self.all[task.reused.run].tasks[name], task.reused.attempt
            hold(Law.RERUN, was.state is TaskState.SUCCEEDED, run.id, "reuses", name, was.state)
            if reused is not None and reused.worker != NO_WORKER:
                origin = AttemptId(task.reused.run, name, reused.number)
                end = self._world.ledger.attempts.ends[origin]
                hold(Law.RERUN, end.outcome is Outcome.SUCCEEDED, run.id, "reuses", origin, end.outcome)

    def _pause_holds(self, before: Run, run: Run, resumed: Set[RunId]) -> None:
        if before.paused is None or run.id in resumed:
            return
        parent = None if run.parent is None else self.live[run.parent.run]
        if parent is not None and parent.paused is None and before.paused.by == f"run {parent.id}":
            return
        hold(Law.PAUSED, run.paused == before.paused, run.id, "is not paused any more")
        begun = before.state is RunState.QUEUED and run.state is RunState.RUNNING
        opened = len(run.open_attempts()) > len(before.open_attempts())
        hold(Law.PAUSED, not (begun or opened), run.id, "begins something")

    def _pools_hold(self, opened: TaskRun) -> None:
        sizes = self._world.ledger.settings.pools
        used: Counter[str] = Counter()
        for run in self.live.values():
            for task in run.tasks.values():
                used.update(task.spec.pools if task.open_attempt is not None else {})
        for pool in opened.spec.pools:
            hold(Law.POOLS, used[pool] <= sizes.get(pool, 0), pool, used[pool], "of", sizes)

    def _places_fit(self, before: Run, run: Run, pipelines: Mapping[PipelineName, PipelineRecord]) -> None:
        if (before.state, run.state) == (RunState.QUEUED, RunState.RUNNING):
            self._started(run, pipelines, before)
        elif before.state is RunState.RUNNING and run.state is RunState.QUEUED:
            self.queued_again.add(run.id)
        elif places.works(run) > places.works(before):
            self._fits(run, pipelines)

    def _fits(self, run: Run, pipelines: Mapping[PipelineName, PipelineRecord]) -> None:
        """Check the limits with a run that has just taken a place."""
        live = [other for other in self.live.values() if not other.state.is_final]
        counted = places.in_cluster(live)
        hold(Law.CONCURRENCY, len(counted) <= MAX_RUNNING, run.id, counted)
        concurrency = pipelines[run.pipeline].profile.concurrency
        own = sum(places.in_pipeline(other) for other in live if other.pipeline == run.pipeline)
        hold(Law.CONCURRENCY, concurrency is None or own <= concurrency.limit, run.id, "is one of", own)

    def _started(
        self, run: Run, pipelines: Mapping[PipelineName, PipelineRecord], before: Run | None = None
    ) -> None:
        self._fits(run, pipelines)
        live = [other for other in self.live.values() if not other.state.is_final]
        counted = places.in_cluster([other for other in live if other.id != run.id])

        def wants(one: Run) -> tuple[bool, bool, bool]:
            return places.can_work(one), places.in_pipeline(one), places.top_of(one, live) in counted

        overtaken = [
            other.id
            for other in live
            if other.state is RunState.QUEUED
            and other.pipeline == run.pipeline
            and other.paused is None
            and run_rank(other) < run_rank(run)
            and wants(other) == wants(before or run)
            and (run.backfill is None or other.backfill is not None)  # it may be next
        ]
        hold(Law.CONCURRENCY, not overtaken, run.id, "starts before", overtaken)
        hold(Law.CONCURRENCY, run.deadline == (run.timeout and run.started_at + run.timeout), run.id)  # type: ignore[operator]

    def _moved(self, before: Run, after: Run) -> None:
        hold(Law.FINAL_IS_FINAL, not before.state.is_final, after.id, before.state, "->", after.state)
        back = before.state.is_ending and not after.state.is_ending
        if before.state is RunState.RUNNING and after.state is RunState.QUEUED:
            back |= places.can_work(before) or not places.can_work(after)
        hold(Law.FINAL_IS_FINAL, not back, after.id, "goes on after it was stopped")
        most, open_now = after.max_parallel_tasks, len(after.open_attempts())
        hold(Law.PARALLEL_TASKS, most is None or open_now <= most, after.id, open_now, "of", most)
        for was, task in after.tasks.changes_since(before.tasks):
            if was is not None and was != task:  # equal ones differ in identity after a takeover
                self._task_moved(after, was, task)
        if (
            after.state is RunState.FAILED
            and after.reason.startswith("failed: ")
            and "stopped" not in after.reason
        ):
            left = [task.spec.name for task in after.tasks.values() if _was_left(after, task)]
            hold(Law.CLEAN_UP, not left, after.id, "ends without", left)
        unfinished = after.tasks.count(TaskState.WAITING, TaskState.RUNNING)
        hold(Law.FINAL_IS_FINAL, not (after.state.is_final and unfinished), after.id, "has tasks under way")

    def _task_moved(self, run: Run, was: TaskRun, task: TaskRun) -> None:
        name = f"{run.id}.{task.spec.name}"
        hold(Law.FINAL_IS_FINAL, not was.state.is_final, name, was.state, "->", task.state)
        settled = len(was.attempts) - (was.open_attempt is not None)
        same = was.attempts[:settled] == task.attempts[:settled]
        hold(Law.FINAL_IS_FINAL, same, name, "has another past")
        hold(Law.ONE_AT_A_TIME, len(task.attempts) <= len(was.attempts) + 1, name, "has many new attempts")
        if self._is_marked(run, task):
            return
        if not task.spec.kind.uses_worker:
            self._ended_as_it_waited(run, task)
            return
        if task.settled is not None and "queue_timeout" in task.settled.reason:
            due = queue_ends_at(run, was)
            hold(Law.QUEUE_TIMEOUT, due is not None and due <= task.settled.at, name, task.settled.at, due)
        good = sum(attempt.outcome is Outcome.SUCCEEDED for attempt in task.attempts)
        once = task.spec.keeps_running or good == (task.state is TaskState.SUCCEEDED)
        hold(Law.ONE_SUCCESS, once, name, task.state, good)
        if task.spec.reads and not task.attempts:
            self._decided_by_results(run, task)
        elif task.state is TaskState.FAILED and task.settled is None:
            hold(Law.RETRIES_COUNT, self._may_fail(run, task), name, "failed with retries left")
        elif task.state is TaskState.SKIPPED:
            hold(Law.NEEDS_FIRST, not _is_joined(run, task), name, "was skipped, though a branch succeeded")

    def _is_marked(self, run: Run, task: TaskRun) -> bool:
        """True if a person ended a task without running it."""
        if task.settled is None or task.settled.by != "ann":
            return False
        name = run.id, task.spec.name
        asked = self._world.ledger.submitted.values()
        marks = [one.state for one in asked if isinstance(one, c.MarkTask) and (one.run_id, one.task) == name]
        if task.state not in marks and not task.spec.kind.uses_worker:
            return False  # approved or not, by the same person; a mark that came later was refused
        hold(Law.ONE_SUCCESS, task.state in marks, name, task.state, "and asked was", marks)
        return True

    def _ended_as_it_waited(self, run: Run, task: TaskRun) -> None:
        """An approval ends by one command, a wait for data by a check; both also at their timeout."""
        name, settled = f"{run.id}.{task.spec.name}", task.settled
        hold(Law.WAITS, not task.attempts, name, "was given to a worker")
        ended = task.state in (TaskState.SUCCEEDED, TaskState.FAILED)
        hold(Law.WAITS, ended == (settled is not None), name, task.state, settled)
        if settled is None:
            return
        asked = [
            command.approved
            for command in self._world.ledger.submitted.values()
            if isinstance(command, DecideApproval)
            and (command.run_id, command.task) == (run.id, task.spec.name)
        ]
        if task.spec.awaits_pipelines:
            self._world.ledger.intervals.check_wait(run, task)
            return
        if task.spec.kind is TaskKind.WAIT and task.state is TaskState.SUCCEEDED:
            for probe in probes_of(task.spec.waits_for, task.spec.args):
                found = self.found.get(probe, -inf) >= self._created_s[run.id]
                hold(Law.WAITS, found, name, "succeeded, though no leader found", probe)
            return
        as_asked = settled.by and (task.state is TaskState.SUCCEEDED) in asked
        overdue = task.state is TaskState.FAILED and not settled.by and gives_up_at(run, task) <= settled.at  # type: ignore[operator]
        hold(Law.WAITS, as_asked or overdue, name, task.state, settled, "and asked was", asked)

    def _decided_by_results(self, run: Run, task: TaskRun) -> None:
        """True if a task has ended without an attempt, although it reads results."""
        met = all(run.tasks[need].state is TaskState.SUCCEEDED for need in task.spec.needs)
        given = self._world.ledger.attempts.given(run.id, task.spec.reads[0])
        known = given is not None
        name = f"{run.id}.{task.spec.name}"
        if task.state is TaskState.FAILED:
            hold(Law.RESULTS, not known, name, "failed, and could read", given)
        elif task.state is TaskState.SKIPPED and met:
            hold(Law.RESULTS, known and not str(given).endswith(".1"), name, "was skipped for", given)

    def _may_fail(self, run: Run, task: TaskRun) -> bool:
        return (
            run.state is not RunState.RUNNING
            or run.verdict is not None  # only its clean-up is retried
            or task.attempts[-1].outcome is Outcome.STOPPED
            or not self.may_try(task)
        )

    def may_try(self, task: TaskRun) -> bool:
        """True if one more attempt is permitted, without using the record's own count."""
        if task.spec.keeps_running:
            return True
        outcomes = [attempt.outcome for attempt in task.attempts]
        failures = sum(outcome in (Outcome.FAILED, Outcome.TIMED_OUT) for outcome in outcomes)
        lost = sum(outcome in _INFRASTRUCTURE for outcome in outcomes)
        hopeless = any(attempt.failure is FailureClass.ANALYSIS for attempt in task.attempts)
        within = failures <= task.spec.retries.limit and lost < self._world.policy.max_infrastructure_failures
        return within and not hopeless


def _is_joined(run: Run, task: TaskRun) -> bool:
    """True if a branch succeeded, and the task joins branches without more conditions."""
    join = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    joins = all(task.spec.trigger_rule(need) is join for need in task.spec.needs)
    return joins and any(run.tasks[need].state is TaskState.SUCCEEDED for need in task.spec.needs)


def _was_left(run: Run, task: TaskRun) -> bool:
    """True if a task did not run although all its needs were met."""
    asked = task.spec.requirements
    failed = {
        need for need in task.spec.needs if run.tasks[need].state in (TaskState.FAILED, TaskState.NOT_RUN)
    }
    one_failed = any(asked.get(need) is TriggerRule.ONE_FAILED for need in failed)
    met = all(
        asked.get(need) is TriggerRule.DONE
        or (asked.get(need) is TriggerRule.FAILED and need in failed)
        or (asked.get(need) is TriggerRule.ONE_FAILED and one_failed)
        for need in task.spec.needs
    )
    return bool(task.spec.needs) and met and task.state is TaskState.NOT_RUN
