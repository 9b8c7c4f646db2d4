"""The leader resigns when the record of an accepted abdication names its epoch."""

from __future__ import annotations

from nimbus.engine.decision import Answer, Decision, Nothing, ResignLeadership
from nimbus.engine.state import State


def resign_as_recorded(state: State) -> Answer:
    """Give up the epoch that the record names; one that was meant for a predecessor is done already."""
    asked = state.abdication
    if asked is None or asked.epoch != state.epoch or state.resigning:
        return Nothing()
    return Decision(
        name="resignation_started",
        effects=(ResignLeadership(asked.reason),),
        about={"reason": asked.reason},
    )
