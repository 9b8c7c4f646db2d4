"""Whose fault it is when a rule or a write fails: that one is set aside, and all others go on.

Every scheduler applies the same rules to the same state, so what ends one leader's reign would end its
successor's too, and one bad record would stop the cluster. Resigning helps only against faults of our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime

from nimbus.domain import writes as w
from nimbus.engine.decision import Decision
from nimbus.engine.facts import Facts, Subject


def subject_of(decision: Decision) -> Subject | None:
    """What a decision is about: its command, or else its pipeline, or else its run."""
    found: dict[str, Subject] = {}
    for write in decision.writes:
        match write:
            case w.ConsumeCommand(outcome):
                found["command"] = Subject("command", outcome.command)
            case w.CreatePipeline(record) | w.PutPipeline(record):
                found["pipeline"] = Subject("pipeline", record.name)
            case w.CreateRun(run) | w.PutRun(run):
                found["run"] = Subject("run", run.id)
            case w.RemoveRun(run_id):
                found["run"] = Subject("run", run_id)
            case w.RemoveAttempt(attempt):
                found["run"] = Subject("run", attempt.run)
            case _:
                continue
    return found.get("command") or found.get("pipeline") or found.get("run")


def culprit(facts: Facts, now: datetime, decide: Callable[[Facts, datetime], object]) -> Subject | None:
    """The one subject over which `decide` fails even when it is alone; None: it is not to be found."""
    if _fails(decide, replace(facts, runs={}, pipelines={}, commands=()), now):
        return None  # nobody's fault
    return next((subject for subject, alone in _one_by_one(facts) if _fails(decide, alone, now)), None)


def _fails(decide: Callable[[Facts, datetime], object], facts: Facts, now: datetime) -> bool:
    try:
        decide(facts, now)
    except Exception:  # noqa: BLE001 - whether it raises, whatever it is, is the question
        return True
    return False


def _one_by_one(facts: Facts) -> Iterator[tuple[Subject, Facts]]:
    bare = replace(facts, runs={}, pipelines={}, commands=())
    for run_id, run in facts.runs.items():
        yield Subject("run", run_id), replace(bare, runs={run_id: run})
    for name, record in facts.pipelines.items():
        yield Subject("pipeline", name), replace(bare, pipelines={name: record})
    for queued in facts.commands:
        # Alone but for the catalog and the runs that it may speak of, none of which fails by itself.
        yield Subject("command", queued.id), replace(facts, commands=(queued,))
