"""Problems that an operator should see first: a sentence and a link to a page for each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import NamedTuple

from nimbus.api.models import ParticipantModel, StatusModel, WorkerModel
from nimbus.domain.ids import DatasetName
from nimbus.domain.pipelines.backfill import Backfill, BackfillState
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.runs.run import ListedRun, Run, RunState
from nimbus.domain.runs.task_run import TaskState
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
    at: datetime | None = None
    """Since when, or when it happened."""
    cause: str = ""


class Failing(NamedTuple):
    """A pipeline with a run that failed within a day."""

    newest: ListedRun
    failed: int
    ended: int
    recovered: bool
    """True: a later run has succeeded, which is not one of a backfill: those are about other dates."""


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
    failing: Sequence[Failing]
    causes: Mapping[str, str]
    """By run: why it failed, as far as it was read."""


def notices(facts: Facts) -> list[Notice]:
    """Notices of problems, the worst first; empty: there is none."""
    about = (_election, _disks, _workers, _pipelines, _datasets, _backfills, _parked, _runs)
    parts = (part(facts) for part in about)
    return [notice for part in parts for notice in part]


def _election(facts: Facts) -> Iterator[Notice]:
    leader = facts.status.leader
    if leader is None:
        yield Notice("No scheduler leads: nothing starts until one does.", "election")
        return
    if not any(
        participant.ready and not participant.is_leader and participant.queue_position is not None
        for participant in facts.participants
    ):
        yield Notice(f"No scheduler is ready to succeed {leader.id}.", "election")


def _disks(facts: Facts) -> Iterator[Notice]:
    full = (
        participant
        for participant in facts.participants
        if participant.registered and 0 < participant.disk_free_bytes < LEAST_DISK_BYTES
    )
    for participant in islice(full, MOST):
        left = format_size(participant.disk_free_bytes)
        yield Notice(f"The disk of scheduler {participant.id} has {left} left.", "election")


def _workers(facts: Facts) -> Iterator[Notice]:
    if not facts.workers:
        yield Notice("No worker is registered: no task starts.", "workers")
    elif all(worker.draining or worker.cordoned is not None or worker.lacks for worker in facts.workers):
        yield Notice("No worker takes new tasks: all drain, are cordoned, or lack room.", "workers")
    for worker in islice((each for each in facts.workers if each.lacks), MOST):
        yield Notice(f"The host of worker {worker.id} lacks {worker.lacks}.", "workers")
    for worker in islice((each for each in facts.workers if each.unstored_logs), MOST):
        yield Notice(f"Logs of worker {worker.id}: {worker.unstored_logs}", "workers")
    for worker in islice((each for each in facts.workers if each.refusals), MOST):
        yield Notice(
            f"Worker {worker.id} did not start its last {counted(worker.refusals, 'attempt')}.", "workers"
        )


def _pipelines(facts: Facts) -> Iterator[Notice]:
    for name, why in sorted(facts.status.quarantined.items())[:MOST]:
        yield Notice(f"Pipeline {name} is quarantined", f"pipelines/{segment(name)}", cause=why)
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
            f"The schedule of pipeline {record.name} is late",
            f"pipelines/{segment(record.name)}",
            due,
            "Nothing was started for this time.",
        )


def _datasets(facts: Facts) -> Iterator[Notice]:
    late = sorted((at, name) for name, at in facts.late_from.items() if at <= facts.now)
    for at, name in late[:MOST]:
        yield Notice(f"Dataset {name} is late", f"datasets/{segment(name)}", at)
    if len(late) > MOST:
        yield Notice(f"{len(late) - MOST} more datasets are late.", "datasets")


def _backfills(facts: Facts) -> Iterator[Notice]:
    paused = (backfill for backfill in facts.backfills if backfill.state is BackfillState.PAUSED)
    for backfill in islice(paused, MOST):
        yield Notice(
            f"Backfill {backfill.id} of pipeline {backfill.pipeline} is paused",
            f"backfills/{segment(backfill.id)}",
            cause=backfill.reason,
        )


def _parked(facts: Facts) -> Iterator[Notice]:
    status = facts.status
    if status.parked_count:
        first = status.parked[0] if status.parked else None
        about = f", such as {first.kind} {first.id}: {first.why}" if first else ""
        keys = counted(status.parked_count, "key")
        yield Notice(f"The leader has parked {keys} that it could not decide about{about}", "election")


def failing_pipelines(runs: Iterable[ListedRun], now: datetime) -> list[Failing]:
    """Pipelines with runs that failed within a day: first those that have not recovered, the newest first.

    `runs`: newest first.
    """
    ended: dict[str, list[ListedRun]] = {}
    for run in runs:
        if run.state.is_final and (run.finished_at or run.created_at) > now - timedelta(days=1):
            ended.setdefault(run.pipeline, []).append(run)
    failing = []
    for of in ended.values():
        failed = [run for run in of if run.state is RunState.FAILED]
        if failed:
            later = of[: of.index(failed[0])]
            recovered = any(run.state is RunState.SUCCEEDED and run.backfill is None for run in later)
            failing.append(Failing(failed[0], len(failed), len(of), recovered))
    return sorted(failing, key=lambda pipeline: pipeline.recovered)


def why_failed(run: Run) -> str:
    """The first task that failed, and why; of a run without one, the run's own reason."""
    failed = [task for task in run.tasks.values() if task.state is TaskState.FAILED and task.attempts]
    if not failed:
        return run.reason
    first = min(failed, key=lambda task: task.attempts[-1].ended_at or run.created_at)
    others = f", and {counted(len(failed) - 1, 'other')} failed" if len(failed) > 1 else ""
    last = first.attempts[-1]
    return f"{first.spec.name}: {last.reason or last.ending}{others}"


def _runs(facts: Facts) -> Iterator[Notice]:
    for pipeline in facts.failing[:MOST]:
        run, many = (
            pipeline.newest,
            f" in {pipeline.failed} of {counted(pipeline.ended, 'run')}" if pipeline.ended > 1 else "",
        )
        since = ", and has succeeded since" if pipeline.recovered else ""
        yield Notice(
            f"Pipeline {run.pipeline} failed{many}{since}",
            f"runs/{segment(run.id)}",
            run.finished_at,
            facts.causes.get(run.id, ""),
        )
    if len(facts.failing) > MOST:
        yield Notice(
            f"{len(facts.failing) - MOST} more pipelines have failed since yesterday.", "runs?state=failed"
        )
