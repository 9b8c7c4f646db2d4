"""The leader resigns when the record of an accepted abdication names its epoch."""

from __future__ import annotations

from nimbus.domain.errors import RefusedError
from nimbus.engine.decision import Answer, Decision, Nothing, ResignLeadership
from nimbus.engine.state import State


def resign_as_recorded(state: State) -> Answer:
    """Resign if the record names this epoch; a record of an earlier epoch is done."""
    asked = state.leadership.abdication
    if asked is None or asked.epoch != state.epoch or state.leadership.resigning:
        return Nothing()
    return Decision(
        name="resignation_started",
        effects=(ResignLeadership(asked.reason, asked.to),),
        about={"reason": asked.reason},
    )


def check_successor(state: State, name: str) -> None:
    """Raise RefusedError if a scheduler cannot lead next, by its registration."""
    found = next((one for one in state.leadership.schedulers if one.id == name), None)
    if found is None:
        raise RefusedError(
            "unknown_scheduler",
            f"no scheduler {name} is registered: `nimbus cluster participants` lists those that are.",
        )
    if state.leadership.terms is not None and name == state.leadership.terms.leader.id:
        raise RefusedError("leads_already", f"{name} leads epoch {state.epoch} already; nothing to do.")
    if not found.ready:
        raise RefusedError(
            "not_ready",
            f"{name} cannot lead yet{f' ({found.lacks})' if found.lacks else ''}: wait until it is ready.",
        )
