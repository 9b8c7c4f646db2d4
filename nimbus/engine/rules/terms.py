"""Writes the record of the leader's term: at its first decision, and after the state is read."""

from __future__ import annotations

from dataclasses import replace

from nimbus.domain import terms
from nimbus.domain.writes import CreateTerm, PutTerm
from nimbus.engine.agenda import Instant
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.state import State


def keep_term(state: State, now: Instant) -> Answer:
    """Open this leader's term, and close an open term before it. Later add what was adopted."""
    keeper = state.leadership.terms
    if keeper is None:
        return Nothing()
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
    if state.census_taken and keeper.own.adopted is None and keeper.own.end is None:
        took_s = round(now.elapsed_s - keeper.elected_s, 6)
        term = replace(terms.seen(keeper.own, now.wall), takeover_s=took_s, adopted=keeper.found)
        return Decision(
            name="state_adopted",
            writes=(PutTerm(term),),
            about={"takeover_s": f"{took_s:.3f}", "attempts": str(keeper.found.attempts)},
        )
    return Nothing()
