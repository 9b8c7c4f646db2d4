"""Raises the cluster's schema after all schedulers and workers have known the newest one long enough."""

from __future__ import annotations

from nimbus.domain import terms
from nimbus.domain.commands import Abdication
from nimbus.domain.writes import PutAbdication, PutTerm, RaiseSchema, Write
from nimbus.engine.agenda import Instant
from nimbus.engine.decision import Answer, Decision, Nothing
from nimbus.engine.state import State


def raise_schema(state: State, now: Instant) -> Answer:
    """Raise the schema and resign: the write makes this term's fencing token stale.

    The resignation follows from the written record, so it also happens if the reply to the write is lost.
    """
    if state.leadership.none_older_since is None:
        return Nothing()
    due_s = state.leadership.none_older_since + state.policy.raise_schema_after.total_seconds()
    if now.elapsed_s < due_s:
        return Nothing(after_s=due_s)
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
