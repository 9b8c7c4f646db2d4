"""The leader resigns when the record of an accepted abdication names its epoch."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from nimbus.engine.decision import Decision, ResignLeadership
from nimbus.engine.facts import Facts


def resign_as_recorded(facts: Facts, _now: datetime) -> Decision | None:
    """Give up the epoch that the record names; one that was meant for a predecessor is done already."""
    asked = facts.abdication
    if asked is None or asked.epoch != facts.epoch or facts.resigning:
        return None
    return Decision(
        name="resignation_started",
        facts=replace(facts, resigning=True),
        effects=(ResignLeadership(asked.reason),),
        about={"reason": asked.reason},
    )
