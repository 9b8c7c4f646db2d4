"""Open attempts: applies their ENDs, supervises silent ones, fences lost ones."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

from nimbus.domain.attempts.orders import order_for
from nimbus.domain.attempts.slots import End
from nimbus.domain.attempts.supervision import (
    Action,
    Close,
    FenceClaim,
    FenceEnd,
    Idle,
    Reap,
    fenced_claim,
    fenced_end,
    supervise,
)
from nimbus.domain.attempts.workers import AssignmentKind
from nimbus.domain.ids import AttemptId
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import Attempt
from nimbus.domain.writes import Assign, PutRun, RequestStop, Unassign, Write, WriteClaim, WriteEnd
from nimbus.engine.decision import Answer, Decision, NoDecision
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant


def supervise_attempt(state: State, attempt_id: AttemptId, now: Instant) -> Answer:
    """Apply the END of an open attempt, or supervise the attempt."""
    opened = state.attempts.find(attempt_id)
    if opened is None:
        return NoDecision()
    run, attempt = opened
    action = _action(state, attempt_id, run, attempt, now)
    if not isinstance(action, Idle):
        return _decision(state, attempt_id, run, attempt, action, now.wall)
    if not attempt.stop_requested:  # once; each attempt has its own decision, which an END may overtake
        if lifecycle.must_stop(run, attempt_id.task):
            return _stop_requested("attempt_stop_requested", attempt_id, run, attempt, run.reason)
        if _must_move(state, attempt_id, run, attempt):
            return _stop_requested("attempt_move_requested", attempt_id, run, attempt, _moves(attempt))
    after_s = None if action.after is None else now.elapsed_s + action.after.total_seconds()
    return NoDecision(at=action.at, after_s=after_s)


def _action(state: State, attempt_id: AttemptId, run: Run, attempt: Attempt, now: Instant) -> Action:
    slots = state.attempts.slots[attempt_id]
    if slots.claim is None and slots.end is None:
        if lifecycle.must_stop(run, attempt_id.task):
            return FenceClaim(f"its run is being stopped: {run.reason}")
        if _must_move(state, attempt_id, run, attempt):
            return FenceClaim(_moves(attempt))
    silent = state.attempts.silent.get(attempt_id)
    return supervise(
        attempt,
        slots,
        silent_for=None if silent is None else timedelta(seconds=now.elapsed_s - silent.since_s),
        workers=state.attempts.workers.registered.values(),
        timings=state.policy.timings,
        now=now.wall,
    )


def _must_move(state: State, attempt_id: AttemptId, run: Run, attempt: Attempt) -> bool:
    """True when a task that is kept running must leave its worker."""
    worker = state.attempts.workers.registered.get(attempt.ordered_to)
    return worker is not None and worker.evicts and run.tasks[attempt_id.task].spec.keeps_running


def _moves(attempt: Attempt) -> str:
    return f"worker {attempt.ordered_to} is drained: the task moves to another one"


def _stop_requested(name: str, attempt_id: AttemptId, run: Run, attempt: Attempt, reason: str) -> Decision:
    return Decision(
        name=name,
        writes=(PutRun(lifecycle.ask_to_stop(run, attempt_id), run), RequestStop(attempt_id, reason)),
        about={"attempt": str(attempt_id), "worker": attempt.ordered_to, "reason": reason},
    )


def _decision(
    state: State,
    attempt_id: AttemptId,
    run: Run,
    attempt: Attempt,
    action: Close | FenceClaim | FenceEnd | Reap,
    now: datetime,
) -> Decision:
    text = str(attempt_id)
    match action:
        case Close(end):
            return _closed("attempt_closed", state, attempt_id, run, attempt, end, (), now)
        case FenceClaim():
            end = fenced_end(text, action, now=now)
            claim = WriteClaim(attempt_id, fenced_claim(text, epoch=state.epoch, now=now))
            writes: tuple[Write, ...] = (claim, WriteEnd(attempt_id, end))
            return _closed("attempt_fenced", state, attempt_id, run, attempt, end, writes, now)
        case FenceEnd():
            end = fenced_end(text, action, now=now)
            writes = (WriteEnd(attempt_id, end),)
            return _closed("attempt_lost", state, attempt_id, run, attempt, end, writes, now)
        case Reap(reaper, claim_to_find):
            asked = lifecycle.ask_to_reap(run, attempt_id, reaper)
            kind = AssignmentKind.REAP
            order = order_for(asked, attempt_id, epoch=state.epoch, kind=kind, claim=claim_to_find)
            return Decision(
                name="attempt_reap_ordered",
                writes=(PutRun(asked, run), *_withdraw(attempt_id, attempt), Assign(reaper, order)),
                about={"attempt": text, "worker": reaper},
            )
        case _:
            assert_never(action)


def _closed(
    name: str,
    state: State,
    attempt_id: AttemptId,
    run: Run,
    attempt: Attempt,
    end: End,
    fences: tuple[Write, ...],
    now: datetime,
) -> Decision:
    closed = lifecycle.close_attempt(
        run, attempt_id, end, max_infrastructure_failures=state.policy.max_infrastructure_failures, now=now
    )
    return Decision(
        name=name,
        writes=(*fences, PutRun(closed, run), *_withdraw(attempt_id, attempt)),
        about={
            "attempt": str(attempt_id),
            "outcome": end.outcome,
            "reason": end.reason,
            "written_by": end.written_by,
            "run_state": closed.state,
        },
    )


def _withdraw(attempt_id: AttemptId, attempt: Attempt) -> tuple[Write, ...]:
    return (Unassign(attempt.ordered_to, attempt_id),)
