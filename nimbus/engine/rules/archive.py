"""Finished runs move to history, so that ZooKeeper does not grow with it."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice

from nimbus.domain.ids import RunId
from nimbus.domain.writes import RemoveAttempt, RemoveRun
from nimbus.engine.decision import Answer, ArchiveRun, Decision, Nothing
from nimbus.engine.rules.children import is_awaited
from nimbus.engine.state import State

AWAITED = timedelta(minutes=1)
"""Pause between two looks at an ended child run whose end is not yet applied to its parent."""
MAX_REMOVED = 200
"""Limit of attempts that one transaction removes: about 300 kB, where ZooKeeper accepts 1 MB."""


def retire_run(state: State, run_id: RunId, now: datetime) -> Answer:
    """Store a final run in history. Remove it after history has it and people had time to see it.

    A new leader starts again: storing the same bytes, or removing missing records, changes nothing.
    """
    finished = state.runs.finished.get(run_id)
    if finished is None or finished.archiving:
        return Nothing()
    if not finished.archived:
        effects, about = (ArchiveRun(run_id),), {"run": run_id}
        return Decision(name="run_archive_started", effects=effects, about=about, repeated=True)
    due = finished.finished_at + state.policy.keep_finished
    if due > now:
        return Nothing(at=due)
    if is_awaited(state, run_id):
        return Nothing(at=now + AWAITED)
    if state.commands.name_run(run_id):  # a second command to start it would not find it, and run it again
        return Nothing()  # the end of the command puts the run on the agenda
    removals = tuple(RemoveAttempt(attempt) for attempt in islice(finished.attempts, MAX_REMOVED))
    if len(finished.attempts) > MAX_REMOVED:
        return Decision(name="run_attempts_dropped", writes=removals, about={"run": run_id})
    return Decision(name="run_dropped", writes=(*removals, RemoveRun(run_id)), about={"run": run_id})
