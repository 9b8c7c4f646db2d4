"""Finished runs move to history, so that ZooKeeper does not grow with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from nimbus.domain.ids import AttemptId
from nimbus.domain.run import Run
from nimbus.domain.writes import RemoveAttempt, RemoveRun
from nimbus.engine.decision import ArchiveRun, Decision
from nimbus.engine.facts import Facts, Subject, without_run

MOST_REMOVED = 200
"""Attempts that one transaction removes: some 300 kB at most, where ZooKeeper takes 1 MB."""


def archive_run(facts: Facts, _now: datetime) -> Decision | None:
    """Store a run in history as soon as it is final. A new leader stores it again: the same bytes."""
    for run in facts.tended_runs():
        if run.state.is_final and run.id not in facts.archived | facts.archiving:
            return Decision(
                name="run_archive_started",
                facts=replace(facts, archiving=facts.archiving | {run.id}),
                effects=(ArchiveRun(run),),
                about={"run": run.id, "state": run.state},
            )
    return None


def drop_archived_run(facts: Facts, now: datetime) -> Decision | None:
    """Remove a run from ZooKeeper once history has it and people had time to look at it."""
    for run_id in sorted(facts.archived):
        run = facts.runs.get(run_id)
        if run is None or Subject("run", run_id) in facts.set_aside:
            continue
        if run.finished_at is None or run.finished_at + facts.policy.keep_finished > now:
            continue
        return _dropped(facts, run)
    return None


def _dropped(facts: Facts, run: Run) -> Decision:
    """Remove the next attempts of a run, and with the last of them its record.

    A new leader begins anew: to remove what is gone already changes nothing.
    """
    done = facts.attempts_removed.get(run.id, 0)
    upto = done + MOST_REMOVED
    ids = [AttemptId(run.id, name, n) for name, task in run.tasks.items() for n in range(1, task.tried + 1)]
    removals = tuple(RemoveAttempt(attempt) for attempt in ids[done:upto])
    if upto < len(ids):
        return Decision(
            name="run_attempts_dropped",
            facts=replace(facts, attempts_removed={**facts.attempts_removed, run.id: upto}),
            writes=removals,
            about={"run": run.id},
        )
    return Decision(
        name="run_dropped",
        facts=without_run(facts, run.id),
        writes=(*removals, RemoveRun(run.id)),
        about={"run": run.id},
    )


def moments(facts: Facts) -> Iterator[datetime]:
    """When an archived run has stood long enough."""
    for run_id in facts.archived:
        run = facts.runs.get(run_id)
        if run is not None and run.finished_at is not None:
            yield run.finished_at + facts.policy.keep_finished
