"""Problems that an operator should see first: a sentence and a link to a page for each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice

from nimbus.api.models import ParticipantModel, StatusModel, WorkerModel
from nimbus.domain.backfill import Backfill, BackfillState
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.ids import DatasetName
from nimbus.domain.run import ListedRun, RunState
from nimbus.domain.wording import counted, format_size
from nimbus.web.pages import segment

LATE = timedelta(minutes=1)
"""Age from which a fire time without a run is late."""
LEAST_DISK_BYTES = 1 << 30
"""Free space of a scheduler's disk below which a notice is shown."""
MOST = 20
"""Limit of notices of each kind."""


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence."""

    text: str
    place: str
    """Path of a page, below `/ui`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts that notices are derived from."""

    now: datetime
    status: StatusModel
    participants: Sequence[ParticipantModel]
    workers: Sequence[WorkerModel]
    pipelines: Sequence[PipelineRecord]
    due: Mapping[str, datetime]
    """By pipeline: its first fire time that is not handled."""
    late_from: Mapping[DatasetName, datetime]
    """When datasets become late without newer data."""
    backfills: Sequence[Backfill]
    runs: Sequence[ListedRun]
    """Live runs, and runs that ended lately; newest first."""


def notices(facts: Facts) -> list[Notice]:
    """Notices of problems, the worst first; empty: there is none."""
    about = (_election, _disks, _workers, _pipelines, _datasets, _backfills, _set_aside, _runs)
    parts = (part(facts) for part in about)
    return [notice for part in parts for notice in part]


def _election(facts: Facts) -> Iterator[Notice]:
    leader = facts.status.leader
    if leader is None:
        yield Notice("No scheduler leads: nothing starts until one does.", "election")
        return
    if not any(
        one.ready and not one.is_leader and one.queue_position is not None for one in facts.participants
    ):
        yield Notice(f"No scheduler is ready to succeed {leader.id}.", "election")


def _disks(facts: Facts) -> Iterator[Notice]:
    full = (
        one for one in facts.participants if one.registered and 0 < one.disk_free_bytes < LEAST_DISK_BYTES
    )
    for one in islice(full, MOST):
        left = format_size(one.disk_free_bytes)
        yield Notice(f"The disk of scheduler {one.id} has {left} left.", "election")


def _workers(facts: Facts) -> Iterator[Notice]:
    if not facts.workers:
        yield Notice("No worker is registered: no task starts.", "workers")
    elif all(one.draining or one.cordoned is not None or one.lacks for one in facts.workers):
        yield Notice("No worker takes new tasks: all drain, are cordoned, or lack room.", "workers")
    for one in islice((one for one in facts.workers if one.lacks), MOST):
        yield Notice(f"The host of worker {one.id} lacks {one.lacks}.", "workers")
    for one in islice((one for one in facts.workers if one.unstored_logs), MOST):
        yield Notice(f"Logs of worker {one.id}: {one.unstored_logs}", "workers")
    for one in islice((one for one in facts.workers if one.refusals), MOST):
        yield Notice(f"Worker {one.id} did not start its last {counted(one.refusals, 'attempt')}.", "workers")


def _pipelines(facts: Facts) -> Iterator[Notice]:
    for name, why in sorted(facts.status.quarantined.items())[:MOST]:
        yield Notice(f"Pipeline {name} is quarantined: {why}", f"pipelines/{segment(name)}")
    late = (
        record
        for record in facts.pipelines
        if record.state is PipelineState.ACTIVE
        and (due := facts.due.get(record.name)) is not None
        and due + LATE < facts.now
    )
    for record in islice(late, MOST):
        due = facts.due[record.name]
        yield Notice(
            f"The schedule of pipeline {record.name} is late: nothing was started for {due:%Y-%m-%d %H:%M}Z.",
            f"pipelines/{segment(record.name)}",
        )


def _datasets(facts: Facts) -> Iterator[Notice]:
    late = sorted((at, name) for name, at in facts.late_from.items() if at <= facts.now)
    for at, name in late[:MOST]:
        yield Notice(f"Dataset {name} is late since {at:%Y-%m-%d %H:%M}Z.", f"datasets/{segment(name)}")
    if len(late) > MOST:
        yield Notice(f"{len(late) - MOST} more datasets are late.", "datasets")


def _backfills(facts: Facts) -> Iterator[Notice]:
    paused = (one for one in facts.backfills if one.state is BackfillState.PAUSED)
    for one in islice(paused, MOST):
        yield Notice(
            f"Backfill {one.id} of pipeline {one.pipeline} is paused: {one.reason}.",
            f"backfills/{segment(one.id)}",
        )


def _set_aside(facts: Facts) -> Iterator[Notice]:
    status = facts.status
    if status.set_aside_count:
        first = status.set_aside[0] if status.set_aside else None
        about = f", such as {first.kind} {first.id}: {first.why}" if first else ""
        yield Notice(f"The leader could not decide about {status.set_aside_count} records{about}", "election")


def _runs(facts: Facts) -> Iterator[Notice]:
    failed = [
        run
        for run in facts.runs
        if run.state is RunState.FAILED
        and (run.finished_at or run.created_at) > facts.now - timedelta(days=1)
    ]
    for run in failed[:MOST]:
        yield Notice(f"Run {run.id} of {run.pipeline} failed.", f"runs/{segment(run.id)}")
    if len(failed) > MOST:
        yield Notice(f"{len(failed) - MOST} more runs since yesterday failed.", "runs?state=failed")
