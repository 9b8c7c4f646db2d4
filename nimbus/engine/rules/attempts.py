"""Open attempts: take in their ENDs, look after the silent ones, fence the lost ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import assert_never

from nimbus.domain import lifecycle
from nimbus.domain.ids import AttemptId
from nimbus.domain.orders import order_for
from nimbus.domain.refusals import with_last
from nimbus.domain.run import Attempt, Run, RunState
from nimbus.domain.slots import End
from nimbus.domain.supervision import (
    Action,
    Close,
    FenceClaim,
    FenceEnd,
    Reap,
    Wait,
    fenced_claim,
    fenced_end,
    supervise,
)
from nimbus.domain.workers import AssignmentKind
from nimbus.domain.writes import Assign, PutRun, Unassign, Write, WriteClaim, WriteEnd
from nimbus.engine.decision import Decision
from nimbus.engine.facts import Facts, with_run


def supervise_attempts(facts: Facts, now: datetime) -> Decision | None:
    """The first open attempt about which something is to be done."""
    for attempt_id, run, attempt in facts.open_attempts():
        decision = _decide(facts, attempt_id, run, attempt, now)
        if decision is not None:
            return decision
    return None


def moments(facts: Facts, now: datetime) -> Iterator[datetime]:
    """When a silence that is borne now will have lasted too long."""
    for attempt_id, run, attempt in facts.open_attempts():
        action = _action(facts, attempt_id, run, attempt, now)
        if isinstance(action, Wait) and action.until is not None:
            yield action.until


def _action(facts: Facts, attempt_id: AttemptId, run: Run, attempt: Attempt, now: datetime) -> Action:
    slots = facts.slots[attempt_id]
    if run.state is RunState.STOPPING and slots.claim is None and slots.end is None:
        return FenceClaim(f"its run is being stopped: {run.reason}")
    since_s = facts.silent_since_s.get(attempt_id)
    return supervise(
        attempt,
        slots,
        silent_for=None if since_s is None else timedelta(seconds=facts.elapsed_s - since_s),
        workers=tuple(facts.workers.values()),
        timings=facts.policy.timings,
        now=now,
    )


def _decide(
    facts: Facts, attempt_id: AttemptId, run: Run, attempt: Attempt, now: datetime
) -> Decision | None:
    text = str(attempt_id)
    action = _action(facts, attempt_id, run, attempt, now)
    match action:
        case Close(end):
            return _closed("attempt_closed", facts, attempt_id, run, attempt, end, (), now)
        case FenceClaim():
            end = fenced_end(text, action, now=now)
            claim = WriteClaim(attempt_id, fenced_claim(text, epoch=facts.epoch, now=now))
            writes: tuple[Write, ...] = (claim, WriteEnd(attempt_id, end))
            return _closed("attempt_fenced", facts, attempt_id, run, attempt, end, writes, now)
        case FenceEnd():
            end = fenced_end(text, action, now=now)
            writes = (WriteEnd(attempt_id, end),)
            return _closed("attempt_lost", facts, attempt_id, run, attempt, end, writes, now)
        case Reap(reaper, claim_to_find):
            asked = lifecycle.ask_to_reap(run, attempt_id, reaper)
            order = order_for(
                asked,
                attempt_id,
                epoch=facts.epoch,
                kind=AssignmentKind.REAP,
                claim=claim_to_find,
            )
            return Decision(
                name="attempt_reap_ordered",
                facts=with_run(facts, asked),
                writes=(PutRun(asked), *_withdraw(attempt_id, attempt), Assign(reaper, order)),
                about={"attempt": text, "worker": reaper},
            )
        case Wait():
            return None
        case _:
            assert_never(action)


def _closed(
    name: str,
    facts: Facts,
    attempt_id: AttemptId,
    run: Run,
    attempt: Attempt,
    end: End,
    fences: tuple[Write, ...],
    now: datetime,
) -> Decision:
    closed = lifecycle.close_attempt(run, attempt_id, end, max_mishaps=facts.policy.max_mishaps, now=now)
    return Decision(
        name=name,
        facts=replace(
            with_run(facts, closed), refusals=with_last(facts.refusals, closed.tasks[attempt_id.task])
        ),
        writes=(*fences, PutRun(closed), *_withdraw(attempt_id, attempt)),
        about={
            "attempt": str(attempt_id),
            "outcome": end.outcome,
            "reason": end.reason,
            "written_by": end.written_by,
            "run_state": closed.state,
        },
    )


def _withdraw(attempt_id: AttemptId, attempt: Attempt) -> tuple[Write, ...]:
    """Take back the one order that stands for an attempt: to its worker, or, later, to its reaper."""
    return (Unassign(attempt.reaper or attempt.worker, attempt_id),)
