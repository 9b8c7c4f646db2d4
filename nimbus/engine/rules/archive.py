"""Finished runs move to history, so that ZooKeeper does not grow with it."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.ids import RunId
from nimbus.domain.writes import RemoveAttempt, RemoveRun
from nimbus.engine.decision import Answer, ArchiveRun, Decision, Nothing
from nimbus.engine.state import State


def retire_run(state: State, run_id: RunId, now: datetime) -> Answer:
    """Store a final run in history; remove it once history has it and people had time to look at it.

    A new leader stores it again: the same bytes.
    """
    finished = state.finished.get(run_id)
    if finished is None or finished.archiving:
        return Nothing()
    if not finished.archived:
        return Decision(name="run_archive_started", effects=(ArchiveRun(run_id),), about={"run": run_id})
    due = finished.finished_at + state.policy.keep_finished
    if due > now:
        return Nothing(at=due)
    attempts = tuple(RemoveAttempt(attempt) for attempt in finished.attempts)
    return Decision(name="run_dropped", writes=(*attempts, RemoveRun(run_id)), about={"run": run_id})
