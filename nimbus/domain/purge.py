"""Purges: what is deleted of runs that have ended, and what stays since others use it. Pure.

What is gone of a run is noted before anything is deleted, and the note stays for good: it says why a log is
not there, or a run, and keeps the run's id from serving twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from nimbus.domain.commands import PurgeRuns, QueuedCommand, StartRun
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.purge_parts import Part
from nimbus.domain.run import Run

RETENTION = "retention"
"""Who asks, when no person did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Who asked, when and why."""

    at: datetime
    by: str
    why: str

    def __str__(self) -> str:
        return f"purged on {self.at:%Y-%m-%d} by {self.by or 'an unknown person'} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeOrder:
    """A purge that was asked for, and is not done yet."""

    what: PurgeRuns
    at: datetime
    by: str

    @property
    def said(self) -> Said:
        """What is noted of each run."""
        return Said(at=self.at, by=self.by, why=self.what.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """What is gone of a run, or is about to go."""

    run: RunId
    pipeline: PipelineName
    created_at: datetime
    parts: Mapping[Part, Said] = field(default_factory=dict)

    def with_parts(self, parts: Iterable[Part], said: Said) -> Purged:
        """The same with more parts; one that was gone before keeps what was said of it."""
        return replace(self, parts={**dict.fromkeys(parts, said), **self.parts})


def fate_of(gone: Purged | None) -> str:
    """What became of a run that history does not have."""
    said = None if gone is None else gone.parts.get(Part.HISTORY)
    return "is neither live nor in history" if said is None else f"was {said}"


class Kept(StrEnum):
    """Why a run keeps what it was asked to lose."""

    LIVE = "it, or the run that started it, has not ended, or only lately"
    REUSED = "a later run reuses what its tasks did"


@dataclass(frozen=True, slots=True)
class Used:
    """Runs that the state in ZooKeeper names."""

    there: frozenset[RunId]
    reused: frozenset[RunId]
    """By runs that are there, or by commands that wait."""


def parts_of(what: PurgeRuns) -> tuple[Part, ...]:
    """In the order in which they go. Logs and outputs go with the history: nobody could find them."""
    return tuple(part for part in Part if part in what.parts or Part.HISTORY in what.parts)


def takes(what: PurgeRuns, run: Run) -> bool:
    """Whether a run is meant."""
    return (
        run.state.is_final
        and what.run_id in (None, run.id)
        and what.pipeline in (None, run.pipeline)
        and (not what.states or run.state in what.states)
        and (what.before is None or (run.finished_at or run.created_at) < what.before)
    )


def reused_runs(run: Run) -> set[RunId]:
    """Runs whose successes stand for tasks of this one."""
    return {task.reused.run for task in run.tasks.in_order() if task.reused is not None}


def used_runs(commands: Iterable[QueuedCommand], runs: Iterable[Run]) -> Used:
    """What the state in ZooKeeper names. `commands` were read before `runs`, which they turn into."""
    asked = (queued.command.selection for queued in commands if isinstance(queued.command, StartRun))
    reused = {selection.reuse for selection in asked if selection is not None and selection.reuse is not None}
    there = set()
    for run in runs:
        there.add(run.id)
        reused |= reused_runs(run)
    return Used(frozenset(there), frozenset(reused))


def why_kept(run: Run, used: Used, reusers: Collection[RunId]) -> Kept | None:
    """Why a run keeps its outputs and its history. LIVE: it keeps its logs, too.

    Args:
        run: That has ended.
        used: By the state in ZooKeeper.
        reusers: Runs in history that reuse it, and have their own outputs.
    """
    if run.id in used.there or (run.parent is not None and run.parent.run in used.there):
        return Kept.LIVE
    return Kept.REUSED if run.id in used.reused or reusers else None


def losing(what: PurgeRuns, kept: Kept | None) -> tuple[Part, ...]:
    """The parts that a run loses."""
    match kept:
        case None:
            return parts_of(what)
        case Kept.REUSED if Part.LOGS in what.parts:
            return (Part.LOGS,)
        case _:
            return ()
