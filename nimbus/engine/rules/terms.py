"""The leader's term: its record, and its end by an accepted abdication or by a raise of the schema."""

from __future__ import annotations

from dataclasses import replace

from nimbus.domain.cluster import terms
from nimbus.domain.commands import Abdication
from nimbus.domain.errors import RefusedError
from nimbus.domain.writes import CreateTerm, PutAbdication, PutTerm, RaiseSchema, Write
from nimbus.engine.decision import Answer, Decision, NoDecision, ResignLeadership
from nimbus.engine.state import State
from nimbus.engine.work_queue import Instant


def keep_term(state: State, now: Instant) -> Answer:
    """Open this leader's term, and close an open term before it. Add what was adopted after all is read."""
    keeper = state.leadership.terms
    if keeper is None:
        return NoDecision()
    if keeper.own is None:
        before = keeper.before
        closed: tuple[PutTerm, ...] = ()
        if before is not None and before.end is None:
            before = terms.ended_by_successor(
                before, state.epoch, state.leadership.abdication, state.leadership.schedulers
            )
            closed = (PutTerm(before),)
        term = terms.begun(keeper.leader, state.epoch, before, now.wall)
        return Decision(
            name="term_opened",
            writes=(*closed, CreateTerm(term)),
            about={
                "gap_s": "" if term.gap_s is None else f"{term.gap_s:.3f}",
                "before": "" if before is None else str(before.epoch),
                "ended_by": "" if before is None or before.end is None else before.end.cause,
            },
        )
    if state.is_loaded and keeper.own.adopted is None and keeper.own.end is None:
        took_s = round(now.elapsed_s - keeper.elected_s, 6)
        term = replace(terms.seen(keeper.own, now.wall), takeover_s=took_s, adopted=keeper.found)
        return Decision(
            name="state_adopted",
            writes=(PutTerm(term),),
            about={"takeover_s": f"{took_s:.3f}", "attempts": str(keeper.found.attempts)},
        )
    return NoDecision()


def raise_schema(state: State, now: Instant) -> Answer:
    """Raise the schema after all schedulers and workers have known the newest one long enough, and resign.

    The write makes this term's fencing token stale.

    The resignation follows from the written record, so it also happens if the reply to the write is lost.
    """
    if state.leadership.none_older_since is None:
        return NoDecision()
    due_s = state.leadership.none_older_since + state.policy.raise_schema_after.total_seconds()
    if now.elapsed_s < due_s:
        return NoDecision(after_s=due_s)
    newest = state.policy.newest_schema
    reason = f"the cluster's schema was raised from {state.leadership.schema} to {newest}"
    writes: tuple[Write, ...] = (
        RaiseSchema(newest),
        PutAbdication(Abdication(epoch=state.epoch, reason=reason)),
    )
    if state.leadership.terms is not None and state.leadership.terms.own is not None:
        own = state.leadership.terms.counted(state.leadership.terms.own)
        writes += (PutTerm(terms.ended(own, terms.EndCause.RESIGNED, now.wall, reason=reason)),)
    return Decision(
        name="schema_raised",
        writes=writes,
        about={"reason": reason},
    )


def resign_as_recorded(state: State) -> Answer:
    """Resign if the record of an abdication names this epoch; a record of an earlier epoch is done."""
    asked = state.leadership.abdication
    if asked is None or asked.epoch != state.epoch or state.leadership.resigning:
        return NoDecision()
    return Decision(
        name="resignation_started",
        effects=(ResignLeadership(asked.reason, asked.to),),
        about={"reason": asked.reason},
    )


def check_successor(state: State, name: str) -> None:
    """Raise RefusedError if a scheduler cannot lead next, by its registration."""
    scheduler = next((candidate for candidate in state.leadership.schedulers if candidate.id == name), None)
    if scheduler is None:
        raise RefusedError(
            "unknown_scheduler",
            f"no scheduler {name} is registered: `nimbus cluster participants` lists those that are.",
        )
    if state.leadership.terms is not None and name == state.leadership.terms.leader.id:
        raise RefusedError("leads_already", f"{name} leads epoch {state.epoch} already; nothing to do.")
    if not scheduler.ready:
        raise RefusedError(
            "not_ready",
            f"{name} cannot lead yet{f' ({scheduler.lacks})' if scheduler.lacks else ''}: wait until it is "
            "ready.",
        )
