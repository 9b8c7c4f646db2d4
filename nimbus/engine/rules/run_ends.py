"""Runs that must end, and ended runs, which move to history, so that ZooKeeper does not grow with it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice

from nimbus.domain.ids import RunId
from nimbus.domain.pipelines.pipeline_health import TIMED_OUT
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.children import ItemState
from nimbus.domain.runs.run import Paused, Run, RunState
from nimbus.domain.writes import RemoveAttempt, RemoveRun
from nimbus.engine.decision import Answer, ArchiveRun, Decision, NoDecision, put_run
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant


def stop_run(state: State, run_id: RunId, now: Instant) -> Answer:
    """Fail a run past its deadline, or let it follow its parent. Its open attempts stop by their own rule."""
    run = state.runs.live.get(run_id)
    if run is None:
        return NoDecision()
    state.runs.check_needs(run_id)
    if run.state is RunState.STOPPING:
        return NoDecision()
    if (with_parent := _follow_parent(state, run, now)) is not None:
        return with_parent
    if run.deadline is None or run.deadline > now.wall:
        return NoDecision(at=run.deadline)
    reason = f"{TIMED_OUT}: not finished by {run.deadline:%Y-%m-%d %H:%M:%S}Z"
    stopped = lifecycle.stop(run, verdict=RunState.FAILED, reason=reason, now=now.wall)
    return put_run("run_timed_out", stopped, run)


def _follow_parent(state: State, run: Run, now: Instant) -> Decision | None:
    """Stop, pause or resume a child run together with its parent."""
    link = run.parent
    parent = None if link is None else state.runs.live.get(link.run)
    if link is None or parent is None:
        return None
    if lifecycle.must_stop(parent, link.task):
        reason = f"its parent, run {parent.id}, is being stopped: {parent.reason}"
        stopped = lifecycle.stop(run, verdict=RunState.STOPPED, reason=reason, now=now.wall)
        return None if stopped is run else put_run("child_run_stopped", stopped, run, parent=parent.id)
    by = f"run {parent.id}"
    if parent.paused is not None and run.paused is None:
        paused = replace(run, paused=Paused(by=by, at=now.wall))
        return put_run("child_run_paused", paused, run, parent=parent.id)
    if parent.paused is None and run.paused is not None and run.paused.by == by:
        return put_run("child_run_resumed", replace(run, paused=None), run, parent=parent.id)
    return None


AWAITED = timedelta(minutes=1)
"""Pause between two looks at an ended child run whose end is not yet applied to its parent."""
MAX_REMOVED = 200
"""Limit of attempts that one transaction removes: about 300 kB, where ZooKeeper accepts 1 MB."""


def retire_run(state: State, run_id: RunId, now: datetime) -> Answer:
    """Store a final run in history. Remove it after history has it and people had time to see it.

    A new leader starts again: storing the same bytes, or removing missing records, changes nothing.
    """
    finished = state.runs.finished.get(run_id)
    if finished is None or finished.archiving:
        return NoDecision()
    if not finished.archived:
        effects, about = (ArchiveRun(run_id),), {"run": run_id}
        return Decision(name="run_archive_started", effects=effects, about=about, repeated=True)
    due = finished.finished_at + state.policy.keep_finished
    if due > now:
        return NoDecision(at=due)
    if is_awaited(state, run_id):
        return NoDecision(at=now + AWAITED)
    if state.commands.name_run(run_id):  # a second command to start it would not find it, and run it again
        return NoDecision()  # the end of the command queues the run
    removals = tuple(RemoveAttempt(attempt) for attempt in islice(finished.attempts, MAX_REMOVED))
    if len(finished.attempts) > MAX_REMOVED:
        return Decision(name="run_attempts_dropped", writes=removals, about={"run": run_id})
    return Decision(name="run_dropped", writes=(*removals, RemoveRun(run_id)), about={"run": run_id})


def is_awaited(state: State, child: RunId) -> bool:
    """True when the end of a child run is not yet applied to its parent."""
    end = state.runs.finished.get(child)
    link = None if end is None else end.parent
    parent = None if link is None else state.runs.live.get(link.run)
    if link is None or parent is None:
        return False
    children = parent.tasks[link.task].children
    is_last = children is not None and children.attempt == link.attempt
    return is_last and children is not None and children.states[link.index] == ItemState.OPEN
