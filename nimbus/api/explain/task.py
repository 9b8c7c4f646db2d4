"""Explains why a task is not running, as text for people. Pure: facts in, sentence out.

It uses the leader's own rules, so that the answer is the reason and not a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from nimbus.api.explain.admission import why_not_admitted
from nimbus.api.explain.data import DatasetView, why_it_reads
from nimbus.api.explain.queue import QueueView, circle_of, circle_through, why_queued
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.attempts.supervision import Idle, Timings, shows_life, supervise
from nimbus.domain.cluster.schedulers import ParkedKey, SchedulerInfo
from nimbus.domain.ids import DatasetName, PipelineName, RunId, TaskName
from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.child_runs import child_of
from nimbus.domain.runs.children import Children, ItemState
from nimbus.domain.runs.lifecycle import must_stop
from nimbus.domain.runs.run import Paused, Run, RunState
from nimbus.domain.runs.task_run import Attempt, Reused, Settlement, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.starts.admission import Capacity
from nimbus.domain.starts.needs import NeedEffect, skipping, verdict
from nimbus.domain.starts.timing import gives_up_at, not_before, queue_ends_at
from nimbus.domain.starts.upstream import Upstream, WaitState, judge, upstream_of
from nimbus.domain.starts.waits import DataProbe, DataSource, LastProbe, PipelineWait, probes_of
from nimbus.domain.wording import counted


def why_it_waits(
    run: Run,
    task: TaskRun,
    probes: Mapping[str, LastProbe],
    upstream: Callable[[PipelineName], Upstream],
    now: datetime,
) -> str:
    """What a ready task waits for, and what ends the wait."""
    until = gives_up_at(run, task)
    end = "" if until is None else f"; it fails at {until:%Y-%m-%d %H:%M:%SZ} without it"
    if task.spec.kind is TaskKind.WAIT:
        wanted = probes_of(task.spec.waits_for, task.spec.args)
        waited = [_probed(probe, probes.get(probe.name), now) for probe in wanted]
        for wait in task.spec.waits_for:
            if isinstance(wait, PipelineWait):
                pipeline = upstream_of(wait, run)
                judged = judge(wait, run, upstream(pipeline))
                waited += (
                    [f"pipeline {pipeline}: {judged.missing}"] if judged.standing is WaitState.OPEN else []
                )
        return f"waits for {', and for '.join(waited) or 'the leader, to see that all is there'}{end}"
    name = task.spec.name
    return (
        f"waits for an approval: {task.spec.args[0]}; end it with "
        f"`nimbus run approve {run.id} {name} --reason ...` (--reject: it fails){end}"
    )


def _probed(probe: DataProbe, last: LastProbe | None, now: datetime) -> str:
    where = f"file {probe.name} on the leader's host" if probe.source is DataSource.FILE else probe.name
    if last is None:
        return where
    ago_s, next_s = (now - last.at).total_seconds(), (last.next_at - now).total_seconds()
    return (
        f"{where} (last probed {max(ago_s, 0):.0f} s ago: {last.said}; next probe in {max(next_s, 0):.0f} s)"
    )


def how_settled(task: TaskRun, settled: Settlement) -> str:
    """How a task that no worker ran has ended."""
    if task.spec.kind is not TaskKind.APPROVAL and settled.by:
        return f"marked {task.state} by {settled.by}: {settled.reason}"
    if task.spec.kind is not TaskKind.APPROVAL or not settled.by:
        return settled.reason
    verb = "approved" if task.state is TaskState.SUCCEEDED else "rejected"
    return f"{verb} by {settled.by}: {settled.reason}"


NO_LEADER = "no scheduler leads at the moment"


def why_children(
    run: Run,
    task: TaskRun,
    leader: str | None,
    read: Callable[[RunId], Run | None],
    why_run: Callable[[Run], str | None],
) -> str | None:
    """Explain a task that has begun its child runs: the first one that it waits for, and how many more.

    `read`: reads a run that is in ZooKeeper; `why_run`: explains a queued run.
    """
    children, spec = task.children, task.spec.children
    if children is None or spec is None:
        return None
    waits = _waits(run, task, children, leader, read, why_run)
    left = children.count(ItemState.WAITING)
    if must_stop(run, task.spec.name):
        return f"{waits}; its run is being stopped, and no more are started"
    if run.paused is not None:
        return f"{waits}; its run is paused, and no more are started"
    if left and children.count(ItemState.OPEN) == spec.max_parallel:
        return f"{waits}; {left} more are started as others end: max_parallel is {spec.max_parallel}"
    if left:
        return f"{waits}; the leader has {left} more to start"
    return waits


def _waits(
    run: Run,
    task: TaskRun,
    children: Children,
    leader: str | None,
    read: Callable[[RunId], Run | None],
    why_run: Callable[[Run], str | None],
) -> str:
    total, good = len(children.states), children.count(ItemState.SUCCEEDED)
    done = f"{good} of {total} child runs have succeeded"
    first = children.first(ItemState.OPEN)
    if first is None:
        return done if leader else f"{done}; {NO_LEADER}"
    name = child_of(run, task.spec.name, first)
    others = children.count(ItemState.OPEN) - 1
    more = f" and {others} more" if others else ""
    child = None if name is None else read(name)
    if child is None or child.state.is_final:
        return f"{done}; child run {name} has ended, and the leader has not applied that yet" + (
            "" if leader else f"; {NO_LEADER}"
        )
    queued = f": {why_run(child)}" if child.state is RunState.QUEUED else ""
    return f"{done}; waits for child run {name}, which is {child.state}{queued}{more}"


_DAY, _NAMED = timedelta(days=1), 20
FailedAbove = Mapping[TaskName, Sequence[TaskName]]
_PARKED = {"run": "the run", "children": "the task"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """Facts that a task depends on, besides its own run."""

    now: datetime
    leader: str | None
    """Id of the confirmed leader."""
    capacity: Callable[[], Capacity]
    """Read only when needed: most runs have no task that waits for a worker."""
    schedulers: Callable[[], Collection[SchedulerInfo]] = tuple
    """Registered schedulers."""
    upstream: Callable[[PipelineName], Upstream] = lambda _name: Upstream(None, ())
    """Facts about the runs of a pipeline; read when a task waits for them."""
    datasets: Callable[[DatasetName], DatasetView] = lambda _name: DatasetView(None)
    """What is known of a dataset; read when a task waits for it."""
    probes: Callable[[], Mapping[str, LastProbe]] = dict
    """The leader's last probes of data that tasks wait for."""
    queue: Callable[[Run], QueueView] | None = None
    """Read for a queued run. None: the run is not queued."""
    run: Callable[[RunId], Run | None] = lambda _: None
    """Reads a child run that is in ZooKeeper."""
    timings: Timings = field(default_factory=Timings)
    """Of the supervision of attempts."""
    parked: Callable[[], Collection[ParkedKey]] = tuple
    """Keys that the leader has parked."""
    failed_above: dict[RunId, tuple[Tasks, FailedAbove]] = field(default_factory=dict)
    """Noted by the first explanation of a task that was not run: its run may have thousands of them."""


def why_run(run: Run, facts: ClusterFacts) -> str | None:
    """Explain a queued, paused or parked run; None: it is none of these."""
    if not run.state.is_final and (parked := why_parked(facts.parked(), "run", run.id)) is not None:
        return parked
    if run.paused is not None and not run.state.is_ending:
        return _paused(run, run.paused)
    if run.state is not RunState.QUEUED or facts.queue is None:
        return None
    return why_queued(run, facts.queue(run), facts.leader, circle_of(run, facts))


def _paused(run: Run, paused: Paused) -> str:
    since = f"paused by {paused.by or 'somebody'} at {paused.at:%Y-%m-%d %H:%M:%SZ}"
    deadline = "" if run.deadline is None else f"; its deadline, {run.deadline:%Y-%m-%d %H:%M:%SZ}, counts"
    return f"{since}; resume with `nimbus run resume {run.id}`{deadline}"


def why(run: Run, task: TaskRun, slots: Slots | None, facts: ClusterFacts) -> str | None:
    """One sentence about a task; None: there is nothing to explain, since it computes or has succeeded.

    `slots`: those of its open attempt; None: there is none, or they could not be read.
    """
    if task.settled is not None:
        return how_settled(task, task.settled)
    if not task.state.is_final and (parked := _while_parked(run, task, slots, facts)) is not None:
        return parked
    match task.state:
        case TaskState.SUCCEEDED:
            return None if task.reused is None else _reused(task.reused)
        case TaskState.WAITING:
            return _waiting(run, task, facts)
        case TaskState.RUNNING:
            if task.children is not None:
                return why_children(run, task, facts.leader, facts.run, partial(why_run, facts=facts))
            return _running(task, slots, facts)
        case TaskState.SKIPPED:
            return _skipped(run, task)
        case TaskState.NOT_RUN:
            return _not_run(run, task, facts)
        case TaskState.FAILED:
            return _failed(task)


def how_kept(task: TaskRun, now: datetime) -> str | None:
    """How often a task that is kept running was started again, and what ended it last; None: no such task."""
    if not task.spec.keeps_running or task.state.is_final:
        return None
    again = [attempt for attempt in task.attempts if attempt.number > 1 and attempt.opened_at > now - _DAY]
    least = "at least " if again and again[0].number > 2 and again[0] is task.attempts[0] else ""
    told = f"kept running: started again {least}{counted(len(again), 'time')} in the last 24 hours"
    ended = [attempt for attempt in task.attempts[-2:] if attempt.outcome is not None]
    return f"{told}, last after attempt {ended[-1].number}: {_how_ended(ended[-1])}" if ended else told


def _while_parked(run: Run, task: TaskRun, slots: Slots | None, facts: ClusterFacts) -> str | None:
    """Explain a task that only a decision of the leader can move, while its run or it is parked."""
    if not all(run.tasks[need].state.is_final for need in task.spec.needs):
        return None
    computes = task.open_attempt is not None and (slots is None or slots.end is None)
    told = None if computes else why_parked(facts.parked(), "run", run.id)
    return told or why_parked(facts.parked(), "children", run.id, task.spec.name)


def _reused(reused: Reused) -> str:
    attempt = "" if reused.attempt is None else f", attempt {reused.attempt.number}"
    return f"reused from run {reused.run}{attempt}"


def _waiting(run: Run, task: TaskRun, facts: ClusterFacts) -> str:
    if run.state is RunState.QUEUED:
        return "its run is queued"
    unmet = [need for need in task.spec.needs if not run.tasks[need].state.is_final]
    if unmet:
        named = [f"{need} ({run.tasks[need].state.value})" for need in unmet[:_NAMED]]
        more = f" and {len(unmet) - _NAMED} more" if len(unmet) > _NAMED else ""
        return f"needs {', '.join(named)}{more}"
    if run.paused is not None:
        return f"its run is {_paused(run, run.paused)}"
    if facts.leader is None:
        return "no scheduler leads at the moment; it starts when one does"
    if run.state is RunState.STOPPING:
        return f"its run is being stopped: {run.reason}"
    if task.retry_at is not None and task.retry_at > facts.now:
        last = task.attempts[-1] if task.attempts else None
        cause = f" after attempt {last.number}: {_how_ended(last)}" if last and last.outcome else ""
        return f"tried again at {task.retry_at:%Y-%m-%d %H:%M:%SZ}{cause}"
    if not task.spec.kind.uses_worker:
        told = why_it_waits(run, task, facts.probes(), facts.upstream, facts.now)
        return told + circle_through(run, task, facts)
    start = not_before(run, task)
    if start is not None and start > facts.now:
        return f"starts at {start:%Y-%m-%d %H:%M:%SZ} at the earliest: start_after"
    if task.spec.children is not None:
        return f"the leader starts its child runs of pipeline {task.spec.children.pipeline} next"
    ends = queue_ends_at(run, task)
    fails = (
        ""
        if ends is None
        else f"; it fails at {ends:%Y-%m-%d %H:%M:%SZ} if it has not started: queue_timeout"
    )
    reads = why_it_reads(run, task, facts.datasets, lambda: facts.upstream(run.pipeline).live)
    return (reads or why_not_admitted(run, task, facts.capacity(), facts.now)) + fails


def _running(task: TaskRun, slots: Slots | None, facts: ClusterFacts) -> str | None:
    attempt = task.open_attempt
    if attempt is None or slots is None:
        return None
    if slots.end is None and (slots.stop_requested or attempt.stop_requested):
        return "asked to stop; its driver is ending"
    followed = slots.has_heartbeat and (slots.claim is not None or slots.submitted is not None)
    workers = () if followed else facts.capacity().workers
    is_silent = not shows_life(attempt, slots, {worker.id for worker in workers})
    action = supervise(
        attempt,
        slots,
        silent_for=timedelta(0) if is_silent else None,  # the leader alone knows for how long
        workers=workers,
        timings=facts.timings,
        now=facts.now,
    )
    if not action.why:
        return None
    told = action.why if isinstance(action, Idle) else f"{action.why}; the leader has not applied that yet"
    return told if facts.leader else f"{told}; {NO_LEADER}"


def _skipped(run: Run, task: TaskRun) -> str:
    if task.left_out:
        return f"skipped: not selected ({run.selected})"
    spec = task.spec
    ended = (need for name in spec.needs if (need := run.tasks[name]).state.is_final)
    whose = [f"{need.spec.name} ({need.state.value})" for need in skipping(spec, ended)]
    return f"skipped: it does not follow {', '.join(whose)}" if whose else "skipped: its `when` is false"


def _not_run(run: Run, task: TaskRun, facts: ClusterFacts) -> str:
    spec = task.spec
    hindered = any(
        run.tasks[need].state.is_final and verdict(spec, run.tasks[need]) is NeedEffect.HINDER
        for need in spec.needs
    )
    tasks, above = facts.failed_above.get(run.id, (None, {}))
    if tasks is not run.tasks:
        above = _failed_above(run)
        facts.failed_above[run.id] = run.tasks, above
    failed = above[spec.name]
    if hindered and failed:
        others = " and others" if len(failed) > _NAMED else ""
        return f"not run: {', '.join(failed[:_NAMED])}{others} failed"
    return f"not run: {run.reason or 'its run ended'}"


def _failed_above(run: Run) -> FailedAbove:
    """The failed tasks that each task needs, directly or through others: by name, the first ones."""
    above: dict[TaskName, Sequence[TaskName]] = {}
    for task in run.tasks.by_depth():
        needs = task.spec.needs
        failed = {need for need in needs if run.tasks[need].state is TaskState.FAILED}
        above[task.spec.name] = sorted(failed.union(*(above[need] for need in needs)))[: _NAMED + 1]
    return above


def _failed(task: TaskRun) -> str | None:
    last = task.attempts[-1] if task.attempts else None
    if last is None or last.outcome is None:
        return None
    tried = f"{task.tried} attempt{'s' if task.tried > 1 else ''}"
    retries = task.spec.retries
    if task.failures <= retries.limit and not retries.covers(last.failure):
        tried += f", as its retries exclude {last.failure}"
    return f"failed after {tried}: {_how_ended(last)}"


def _how_ended(attempt: Attempt) -> str:
    return f"{attempt.ending}{': ' + attempt.reason if attempt.reason else ''}"


def why_parked(parked: Iterable[ParkedKey], kind: str, name: str, task: str = "") -> str | None:
    """Explain a run, a pipeline, a backfill, a command, or a task (`children`); None: it is not parked."""
    for item in parked:
        if (item.kind, item.id, item.task) == (kind, name, task):
            return (
                f"the leader has parked {_PARKED.get(kind, 'it')}, because it could not decide about it "
                f"({item.why}); it tries again within a minute"
            )
    return None
