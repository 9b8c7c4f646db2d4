"""The leader's rules: each looks at the facts and says the next decision, or None.

`next_decision` asks them in a fixed order until one answers; the reign writes it and asks again, until none
answers. Each decision is one transaction, so after a crash at any point the next leader goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime

from nimbus.engine.decision import Decision
from nimbus.engine.facts import Facts
from nimbus.engine.rules import abdication, archive, assign, attempts, commands, schedules, stops

Rule = Callable[[Facts, datetime], Decision | None]

RULES: tuple[Rule, ...] = (
    abdication.resign_as_recorded,
    attempts.supervise_attempts,  # what has ended comes first: it frees slots and opens the way
    stops.stop_overdue_runs,
    stops.ask_runners_to_stop,
    commands.answer_command,
    schedules.fire_schedule,
    assign.open_next_attempt,
    archive.archive_run,
    archive.drop_archived_run,
)


def next_decision(facts: Facts, now: datetime) -> Decision | None:
    """The first decision that any rule asks for."""
    for rule in RULES:
        decision = rule(facts, now)
        if decision is not None:
            return decision
    return None


def next_wakeup(facts: Facts, now: datetime) -> datetime | None:
    """The next moment at which a rule may answer without any news; None: only news can change that."""
    moments = (moment for moment in _moments(facts, now) if moment > now)
    return min(moments, default=None)


def _moments(facts: Facts, now: datetime) -> Iterator[datetime]:
    yield from attempts.moments(facts, now)
    yield from stops.moments(facts)
    yield from schedules.moments(facts)
    yield from assign.moments(facts)
    yield from archive.moments(facts)
