"""Tasks that start child runs.

A child run is created in the transaction that records it in its parent. Its id is derived from its parent,
task, attempt and item, so two leaders cannot create it twice. Its end is an event: nothing is polled, and a
task that waits for child runs takes no slot.
"""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import ReleaseDigest, TaskName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.pipeline import TaskSpec
from nimbus.domain.runs import child_runs, lifecycle
from nimbus.domain.runs.children import DEEPEST, MAX_AT_A_DEPTH, ChildSpec, ItemState, Parent, child_id
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.runs.task_run import TaskRun, TaskState
from nimbus.domain.starts.places import top_of
from nimbus.domain.starts.timing import not_before
from nimbus.domain.writes import CreateRun, PutRun
from nimbus.engine.decision import Answer, Decision, NoDecision, put_run
from nimbus.engine.rules.release_checks import check_uses
from nimbus.engine.rules.run_starts import built, queued_if_full
from nimbus.engine.state import State
from nimbus.engine.work_queue import Key


def start_children(state: State, key: Key, now: datetime) -> Answer:
    """Begin a task that starts child runs; create its next child run; end the task after the last one."""
    run = state.runs.live.get(key.run)
    task = None if run is None else run.tasks.get(key.task)
    if run is None or task is None or task.spec.children is None:
        return NoDecision()
    if task.state is TaskState.WAITING:
        return _begun(state, run, task, task.spec.children, now)
    if task.children is None or not child_runs.is_under_way(task):
        return NoDecision()
    return _next(state, run, task.spec.name, now)


def take_in_end(state: State, key: Key) -> Answer:
    """Apply the end of an item's child run to the parent. A child run without a record has failed."""
    run = state.runs.live.get(key.run)
    task = None if run is None else run.tasks.get(key.task)
    if run is None or task is None or task.children is None or not child_runs.is_under_way(task):
        return NoDecision()
    child = child_runs.child_of(run, key.task, key.number)
    is_open = task.children.states[key.number] == ItemState.OPEN
    if child is None or not is_open or child in state.runs.live:
        return NoDecision()
    end = state.runs.finished.get(child)
    ended = ItemState.FAILED if end is None else child_runs.item_state(end.state)
    why = "its record is gone" if end is None else end.reason
    reason = "" if ended is ItemState.SUCCEEDED else f"run {child}: {why}"
    moved = child_runs.item_moved(run, key.task, key.number, ended, reason)
    item_state = ended.name.lower()
    return put_run("child_run_ended", moved, run, task=key.task, child=child, item_state=item_state)


def _begun(state: State, run: Run, task: TaskRun, spec: ChildSpec, now: datetime) -> Answer:
    if not lifecycle.is_ready(run, task):
        return NoDecision()
    if (start := not_before(run, task)) is not None and start > now:
        return NoDecision(at=start)
    name = task.spec.name
    declared = state.tasks.spec_of(run.id, task)
    if not isinstance(declared, TaskSpec) or declared.children is None:
        return NoDecision()  # its lists are read first
    known = declared.children.for_each
    lists = {key: values for key in spec.templates if isinstance(values := known[key], tuple)}
    spec = declared.children
    about = {"task": name, "pipeline": spec.pipeline, "items": str(spec.count)}
    if fault := _fault(run, name, spec):  # a retry would not help
        failed = lifecycle.conclude_waiting(run, name, TaskState.FAILED, now, fault)
        return put_run("child_runs_refused", failed, run, **about, reason=fault)
    begun = child_runs.begin(run, name, lists, epoch=state.epoch, now=now)
    return put_run("child_runs_begun", begun, run, **about)


def _fault(run: Run, name: TaskName, spec: ChildSpec) -> str:
    """Why a task cannot start any child run; empty: it can."""
    if spec.release is None:
        return (
            f"pipeline {spec.pipeline} had no active release when run {run.id} was created: "
            f"`nimbus pipeline activate {spec.pipeline}`, then start a new run."
        )
    if spec.count > spec.max_items:
        return f"for_each has {spec.count} items, max_items is {spec.max_items}: nothing was started."
    if _depth(run) > DEEPEST:
        return f"child runs can be {DEEPEST} deep, and run {run.id} is that deep: it starts none."
    width = child_runs.width_of(run, name, spec.count)
    if run.parent is not None and width > MAX_AT_A_DEPTH:
        return (
            f"the run that began all this could come to have {width} child runs of depth {_depth(run)} "
            f"({spec.count} of this task), and {MAX_AT_A_DEPTH} is the most: nothing was started."
        )
    return ""


def _depth(run: Run) -> int:
    """Depth of a child run of `run`."""
    return 1 + (0 if run.parent is None else run.parent.depth)


def _next(state: State, run: Run, name: TaskName, now: datetime) -> Answer:
    if run.state is RunState.QUEUED:
        return NoDecision()  # its start queues the task
    spec, children = child_runs.parts(run, name)
    stopping = lifecycle.must_stop(run, name)  # child runs are stopped by their own rule: see `run_ends`
    index = None if stopping else children.first(ItemState.WAITING)
    under_way = children.count(ItemState.OPEN)
    if index is None and not under_way:
        closed = child_runs.close(
            run, name, max_infrastructure_failures=state.policy.max_infrastructure_failures, now=now
        )
        outcome = closed.tasks[name].attempts[-1].outcome or ""
        return put_run("child_runs_ended", closed, run, task=name, outcome=outcome)
    if index is None or run.paused is not None or under_way >= (spec.max_parallel or len(children.states)):
        return NoDecision()
    try:
        return _created(state, run, name, index, now)
    except RefusedError as exc:
        reason = f"item {index}: {exc}"
        refused = child_runs.item_moved(run, name, index, ItemState.REFUSED, reason)
        return put_run("child_run_refused", refused, run, task=name, item=str(index), reason=str(exc))


def _created(state: State, run: Run, name: TaskName, index: int, now: datetime) -> Answer:
    key = Key("children", run.id, name)
    if key in state.builds.under_way:
        return NoDecision()  # other checks follow when the run is built
    spec, children = child_runs.parts(run, name)
    record, release = _startable(state, spec)
    owner = state.catalog.team_of(run.pipeline) or None
    check_uses(state, run.pipeline, owner, children=[record.name])
    child = child_id(run.id, name, spec, children.attempt, index)
    if child in state.runs:
        raise RefusedError("run_exists", f"run {child} exists already, and is not a child of this task.")
    draft = Draft(
        id=child,
        pipeline=record.name,
        release=release,
        parameters={},
        logical_date=run.logical_date,
        data_interval=run.data_interval,
        cause=RunCause.PARENT,
        priority=run.priority,
        parent=Parent(
            run=run.id,
            task=name,
            attempt=children.attempt,
            index=index,
            top=top_of(run),
            depth=_depth(run),
            width=children.width,
        ),
        asked_at=now,
        submitted_by=run.submitted_by,
    )
    made = built(state, key, draft, run)
    if not isinstance(made, Run):
        return made
    made = queued_if_full(state, made)
    opened = child_runs.item_moved(run, name, index, ItemState.OPEN)
    return Decision(
        name="child_run_created",
        writes=(PutRun(opened, run), CreateRun(made)),
        about={"run": run.id, "task": name, "child": child, "item": str(index), "run_state": made.state},
    )


def _startable(state: State, spec: ChildSpec) -> tuple[PipelineRecord, ReleaseDigest]:
    """The pipeline of a task's child runs, and their release.

    Raises RefusedError: the pipeline cannot start runs now.
    """
    name = spec.pipeline
    record = state.catalog.pipelines.get(name)
    if record is None or spec.release is None:
        raise RefusedError("unknown_pipeline", f"pipeline {name} is no longer in the catalog.")
    if (why := state.catalog.quarantined.get(name)) is not None:
        raise RefusedError("quarantined", f"pipeline {name} is quarantined: {why}")
    if record.state is not PipelineState.ACTIVE:
        raise RefusedError(
            "not_active",
            f"pipeline {name} is {record.state}: `nimbus pipeline activate {name}`, then start a new run.",
        )
    return record, spec.release
