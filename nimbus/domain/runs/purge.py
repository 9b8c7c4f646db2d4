"""Purges: which parts of ended runs are deleted, and which are kept because others use them. Pure.

A record of the purged parts is written before anything is deleted, and is never removed. It explains why a
log or a run is missing, and prevents a second use of the run's id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from nimbus.domain.commands import NoteRun, PurgeRuns, QueuedCommand, StartRun, WithdrawDataset
from nimbus.domain.data.datasets import Dataset, versions_of
from nimbus.domain.ids import DatasetName, PipelineName, RunId
from nimbus.domain.runs.run import Run, RunPart

RETENTION = "retention"
"""Name of the requester when no person requested the purge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """Who requested a purge, when and why."""

    at: datetime
    by: str
    why: str

    def __str__(self) -> str:
        return f"purged on {self.at:%Y-%m-%d} by {self.by or 'an unknown person'} ({self.why})"


@dataclass(frozen=True, slots=True, kw_only=True)
class PurgeOrder:
    """A requested purge that is not completed."""

    what: PurgeRuns
    at: datetime
    by: str

    @property
    def said(self) -> Said:
        """What the record of each purged run states."""
        return Said(at=self.at, by=self.by, why=self.what.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNote:
    """A note about an ended run: kept beside its record in history, and purged with it."""

    what: NoteRun
    at: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    """The parts of a run that are purged, or are being purged."""

    run: RunId
    pipeline: PipelineName
    created_at: datetime
    parts: Mapping[RunPart, Said] = field(default_factory=dict)

    def with_parts(self, parts: Iterable[RunPart], said: Said) -> Purged:
        """The record with more parts; parts that it has already keep their entry."""
        return replace(self, parts={**dict.fromkeys(parts, said), **self.parts})


def fate_of(gone: Purged | None) -> str:
    """Text about a run that history does not have."""
    said = None if gone is None else gone.parts.get(RunPart.HISTORY)
    return "is neither live nor in history" if said is None else f"was {said}"


class KeptReason(StrEnum):
    """Why parts of a run are not purged."""

    LIVE = "it, or the run that started it, has not ended, or only lately"
    PUBLISHED = "a dataset has a version of it that no newer one has replaced"
    VERSIONS = "a version of it is one of the newest that `keep.versions` of a dataset keeps"
    REUSED = "a later run reuses or reads what its tasks did"


@dataclass(frozen=True, slots=True)
class Used:
    """Runs that the state in ZooKeeper names."""

    there: frozenset[RunId]
    reused: frozenset[RunId]
    """Runs that live runs or waiting commands reuse."""
    withdrawing: frozenset[DatasetName] = frozenset()
    """Datasets of which a waiting command may publish an earlier version again."""


def parts_of(what: PurgeRuns) -> tuple[RunPart, ...]:
    """Parts in the order of deletion. History includes logs and outputs: they cannot be found without it."""
    return tuple(part for part in RunPart if part in what.parts or RunPart.HISTORY in what.parts)


def takes(what: PurgeRuns, run: Run) -> bool:
    """True when the command selects a run."""
    return (
        run.state.is_final
        and what.run_id in (None, run.id)
        and what.pipeline in (None, run.pipeline)
        and (not what.states or run.state in what.states)
        and (what.before is None or (run.finished_at or run.created_at) < what.before)
    )


def reused_runs(run: Run) -> set[RunId]:
    """Runs whose successful tasks this run reuses."""
    return {task.reused.run for task in run.tasks.in_order() if task.reused is not None}


def pinned_runs(run: Run) -> set[RunId]:
    """Runs whose outputs a run reads, or has read, as versions of datasets."""
    return {version.source.run for versions in run.pins.values() for version in versions}


def used_runs(
    commands: Iterable[QueuedCommand], runs: Iterable[Run], read: Callable[[RunId], Run | None]
) -> Used:
    """Runs that the state in ZooKeeper names. Read `commands` before `runs`: a command becomes a run.

    `read`: reads a run that is not among `runs`. A waiting rerun will read what its run has pinned.
    """
    commands = tuple(commands)
    withdrawing = frozenset(
        queued.command.dataset for queued in commands if isinstance(queued.command, WithdrawDataset)
    )
    asked = (queued.command.selection for queued in commands if isinstance(queued.command, StartRun))
    repeated = {
        selection.reuse for selection in asked if selection is not None and selection.reuse is not None
    }
    there, reused = set(), set(repeated)
    for run in runs:
        there.add(run.id)
        reused |= reused_runs(run)
        if run.id in repeated or not run.state.is_final:
            reused |= pinned_runs(run)
    for rerun in filter(None, map(read, sorted(repeated - there))):
        reused |= pinned_runs(rerun)
    return Used(frozenset(there), frozenset(reused), withdrawing)


def is_restored(run: Run, used: Used, dataset_of: Callable[[DatasetName], Dataset | None]) -> bool:
    """True when a withdrawal has published a version of a run again, or may do so; history may lack it yet.

    Call it with `used` of an earlier moment: a waiting command becomes a version.
    """
    names = {publication.dataset for publication, _ in versions_of(run)}
    datasets = (None if name in used.withdrawing else dataset_of(name) for name in names)
    again = (version.run for dataset in datasets if dataset is not None for version in dataset.unstored)
    return not names.isdisjoint(used.withdrawing) or run.id in again


def why_kept(
    run: Run, used: Used, reusers: Collection[RunId], published: KeptReason | None
) -> KeptReason | None:
    """Why a run keeps its outputs and its history; None: it does not. LIVE: it keeps its logs, too.

    Args:
        run: A run that has ended.
        used: Runs that the state in ZooKeeper names.
        reusers: Runs in history that reuse it and still have their outputs.
        published: Why datasets keep a version of it, as `History.kept_version` tells; None: they do not.
    """
    if run.id in used.there or (run.parent is not None and run.parent.run in used.there):
        return KeptReason.LIVE
    return published or (KeptReason.REUSED if run.id in used.reused or reusers else None)


def losing(what: PurgeRuns, kept: KeptReason | None) -> tuple[RunPart, ...]:
    """The parts of a run that are deleted."""
    match kept:
        case None:
            return parts_of(what)
        case KeptReason.REUSED | KeptReason.PUBLISHED | KeptReason.VERSIONS if RunPart.LOGS in what.parts:
            return (RunPart.LOGS,)
        case KeptReason.REUSED | KeptReason.PUBLISHED | KeptReason.VERSIONS | KeptReason.LIVE:
            return ()
