"""Builds the leader's report. The cost depends on the number of limits, not on how much is live."""

from __future__ import annotations

from itertools import islice

from nimbus.domain.leader_report import LeaderReport, LimitUse, SetAside, WaitingTask
from nimbus.engine.state import State

MOST_NAMED = 50
"""Limit of named tasks and subjects: the report is part of a registration."""
LONGEST_WHY = 200
"""Limit of a reason, in characters."""


def report(state: State) -> LeaderReport:
    """The report: the use of limits, and the subjects that are set aside."""
    pools = {pool: used for pool in state.settings.pools if (used := state.attempts.pools.used(pool))}
    waiting = {pool: count for pool in state.settings.pools if (count := state.ready.waiting_at_pool(pool))}
    held = ((pool, state.ready.first_at_pool(pool)) for pool in state.settings.pools)
    named = ((pool, WaitingTask(*task)) for pool, task in held if task is not None)
    return LeaderReport(
        limits=LimitUse(
            pools=pools,
            waiting=waiting,
            targets=state.attempts.workers.open_at_targets(),
            held_for=dict(islice(named, MOST_NAMED)),
        ),
        set_aside=tuple(
            SetAside(kind=subject.kind, id=subject.name, task=subject.task, why=why[:LONGEST_WHY])
            for subject, why in islice(state.agenda.set_aside.items(), MOST_NAMED)
        ),
        set_aside_count=len(state.agenda.set_aside),
    )
