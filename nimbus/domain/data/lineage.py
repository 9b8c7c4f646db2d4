"""A run's changes as OpenLineage events: START and one terminal event for each run and attempt. Pure.

A pipeline is a job. Each of its tasks is a job, too, if workers run it or if it starts child runs.
Source: https://openlineage.io/spec/2-0-2/OpenLineage.json
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from nimbus.domain.data.datasets import published_by, versions_of
from nimbus.domain.data.publications import Version
from nimbus.domain.ids import AttemptId, ClusterId, DatasetName
from nimbus.domain.pipelines.pipeline import TaskSpec
from nimbus.domain.runs.run import Run, RunHeader, RunState
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun
from nimbus.domain.runs.traces import Dropped, attempt_uuid, attempts, first_untold, run_uuid


class EventType(StrEnum):
    """Types of events, as the specification spells them."""

    START = "START"
    COMPLETE = "COMPLETE"
    FAIL = "FAIL"
    ABORT = "ABORT"


@dataclass(frozen=True, slots=True)
class LineageRun:
    """One run of one job."""

    run_id: str
    """A UUID."""
    job: str


@dataclass(frozen=True, slots=True)
class Family:
    """The parent and the root of a run."""

    parent: LineageRun | None
    """The task that started it; None: no task did."""
    root: LineageRun
    """The run at the top; the run itself, if no task started it."""


@dataclass(frozen=True, slots=True)
class LineageData:
    """A version of a dataset."""

    dataset: DatasetName
    version: str
    """Its partition, and the number of the run that published it."""


MAX_DATA = 100
"""Limit of the inputs, and of the outputs, of one event: the last partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageEvent:
    """One event."""

    type: EventType
    at: datetime
    of: LineageRun
    parent: LineageRun | None
    """None: no task started the run."""
    root: LineageRun
    task: TaskSpec | None = None
    """None: the event is about the whole run."""
    error: str | None = None
    inputs: tuple[LineageData, ...] = ()
    """Versions that the task reads. Of a run: when it has ended, all that it pinned."""
    outputs: tuple[LineageData, ...] = ()
    """Versions that the success of the task published. Of a run: when it has ended, all of them."""


_OF_RUN = {
    RunState.SUCCEEDED: EventType.COMPLETE,
    RunState.FAILED: EventType.FAIL,
    RunState.STOPPED: EventType.ABORT,
}
_OF_ATTEMPT = {
    Outcome.SUCCEEDED: EventType.COMPLETE,
    Outcome.FAILED: EventType.FAIL,
    Outcome.TIMED_OUT: EventType.FAIL,
}
"""All other outcomes are ABORT: the task's code did not run to its own end."""


def lineage_run(cluster: ClusterId, run: RunHeader) -> LineageRun:
    """A run of a pipeline."""
    return LineageRun(run_uuid(cluster, run.id), run.pipeline)


def lineage_task(cluster: ClusterId, run: RunHeader, attempt: AttemptId) -> LineageRun:
    """An attempt at a task of a run."""
    return LineageRun(attempt_uuid(cluster, attempt), f"{run.pipeline}.{attempt.task}")


def events(
    cluster: ClusterId, before: Run | None, run: Run, family: Family, dropped: Dropped
) -> Iterator[LineageEvent]:
    """Events of a run since `before`; None: since its creation. Equal changes give equal events.

    Args:
        cluster: The cluster of the run.
        before: The last version of the run that was fully reported.
        run: The current version.
        family: Its parent and root.
        dropped: The attempts that `traces.dropped` names.
    """
    me = lineage_run(cluster, run)
    if _has_started(run) and (before is None or not _has_started(before)):
        at = run.started_at or run.created_at
        yield LineageEvent(type=EventType.START, at=at, of=me, parent=family.parent, root=family.root)
    for was, task in run.tasks.changes_since(None if before is None else before.tasks):
        yield from _of_task(cluster, run, was, task, family, dropped)
    if run.state.is_final and (before is None or not before.state.is_final):
        yield LineageEvent(
            type=_OF_RUN[run.state],
            at=run.finished_at or run.created_at,
            of=me,
            parent=family.parent,
            root=family.root,
            error=None if run.state is RunState.SUCCEEDED else run.reason or run.state.value,
            inputs=_pinned(run, run.pins),
            outputs=_data((publication.dataset, version) for publication, version in versions_of(run)),
        )


def _has_started(run: Run) -> bool:
    """True also for a run that was stopped in the queue, so that every run has a START event."""
    return run.state is not RunState.QUEUED or run.started_at is not None


def _of_task(
    cluster: ClusterId, run: Run, was: TaskRun | None, task: TaskRun, family: Family, dropped: Dropped
) -> Iterator[LineageEvent]:
    first, seen = first_untold(was), {attempt.number for attempt in (() if was is None else attempts(was))}
    kept = attempts(task)
    numbers = range(first, kept[0].number) if kept else range(0)
    gone = (dropped.get(AttemptId(run.id, task.spec.name, number)) for number in numbers)
    for attempt in (*(change for change in gone if change is not None), *kept):
        if attempt.number < first:
            continue
        of = lineage_task(cluster, run, AttemptId(run.id, task.spec.name, attempt.number))
        parent = lineage_run(cluster, run)
        if attempt.number not in seen:
            start = EventType.START
            at = attempt.opened_at
            yield LineageEvent(
                type=start,
                at=at,
                of=of,
                parent=parent,
                root=family.root,
                task=task.spec,
                inputs=_pinned(run, task.spec.uses),
            )
        if attempt.outcome is not None:
            yield LineageEvent(
                type=_OF_ATTEMPT.get(attempt.outcome, EventType.ABORT),
                at=_end_of(attempt),
                of=of,
                parent=parent,
                root=family.root,
                task=task.spec,
                error=None if attempt.outcome is Outcome.SUCCEEDED else attempt.reason or attempt.outcome,
                outputs=_published(run, task) if attempt.outcome is Outcome.SUCCEEDED else (),
            )


def _published(run: Run, task: TaskRun) -> tuple[LineageData, ...]:
    return _data((publication.dataset, version) for publication, version in published_by(run, task))


def _pinned(run: Run, names: Collection[str]) -> tuple[LineageData, ...]:
    reads = (read for read in run.reads if read.name in names)
    return _data((read.dataset, version) for read in reads for version in run.pins.get(read.name, ()))


def _data(versions: Iterable[tuple[DatasetName, Version]]) -> tuple[LineageData, ...]:
    data = (
        LineageData(name, f"{version.partition or 'whole'}~{version.number}") for name, version in versions
    )
    return tuple(deque(dict.fromkeys(data), MAX_DATA))


def _end_of(attempt: Attempt) -> datetime:
    """The end, never before the start, although the clocks of two hosts may differ."""
    return max(attempt.opened_at, attempt.ended_at or attempt.opened_at)
