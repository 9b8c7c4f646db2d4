"""Explains what a task that reads datasets, or a pipeline that data start, waits for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from nimbus.definition.targets import DueTarget, RunTarget, due_targets, target_of
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Read
from nimbus.domain.data.reads import ReadError, ReadingRun, missing, reads_new, to_pin
from nimbus.domain.ids import DatasetName, PipelineName, RunId
from nimbus.domain.pipelines.catalog import Profile
from nimbus.domain.pipelines.intervals import shown
from nimbus.domain.runs.run import Run, RunHeader
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.starts.due import Due, has_room

_LOOKED_UP = "waits for the look-up of its versions; while storage does not answer, repeated every 5 s"
MAX_RUNS = 3


@dataclass(frozen=True, slots=True)
class DatasetView:
    """What is known of a dataset."""

    dataset: Dataset | None
    publishers: tuple[PipelineName, ...] = ()
    """Pipelines whose active releases publish it."""
    runs: tuple[RunId, ...] = ()
    """Their runs that have not ended."""


def why_it_reads(
    run: Run,
    task: TaskRun,
    view: Callable[[DatasetName], DatasetView],
    live: Callable[[], Iterable[RunHeader]] = tuple,
) -> str | None:
    """Explain a ready task whose reads are not pinned; None: all are. `live`: live runs of its pipeline."""
    reads = to_pin(run, task.spec.name)
    if not reads:
        return None
    if any(read.new for read in reads):
        for other in live():
            if other.id != run.id and reads_new(other):
                return f"waits for the end of run {other.id}, which reads what is new"
    told_of = [told for read in reads if (told := lacks(read, run, view(read.dataset)))]
    return f"waits for {'; '.join(told_of)}" if told_of else _LOOKED_UP


def lacks(read: Read, run: ReadingRun, view: DatasetView) -> str:
    """What a read waits for, with who may publish it; empty: nothing."""
    try:
        told = missing(read, run, view.dataset)
    except ReadError as exc:
        return f"{exc}; the leader ends it next"
    if not told and _lacks_key(read, view.dataset):
        told = f"dataset {read.dataset}: key {read.key} is not published"
    if not told:
        return ""
    if not view.publishers:
        return f"{told} (no active pipeline that you may see publishes it)"
    if not view.runs:
        return f"{told} (no run of {', '.join(view.publishers)}, which publishes it, is under way)"
    more = f" and {len(view.runs) - MAX_RUNS} more" if len(view.runs) > MAX_RUNS else ""
    runs = f"{', '.join(view.runs[:MAX_RUNS])}{more}"
    return f"{told} ({', '.join(view.publishers)} publishes it: {runs} under way)"


def _lacks_key(read: Read, dataset: Dataset | None) -> bool:
    return bool(read.key) and not read.optional and dataset is not None and dataset.version(read.key) is None


MAX_TARGETS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DueView:
    """Facts that starts by data depend on."""

    due: Due
    datasets: Mapping[DatasetName, DatasetView]
    live: Sequence[Run]
    """Runs of the pipeline that have not ended."""


def why_no_start(view: DueView, profile: Profile, now: datetime, *, is_held: bool) -> Iterator[str]:
    """The reasons, first that of all targets. `is_held`: the pipeline starts nothing, as told elsewhere."""
    due = view.due
    if not due.is_due:
        yield _unchanged(due)
        return
    runs = ", ".join(run.id for run in view.live[:MAX_TARGETS])
    if (until := due.may_start_at) > now:
        why = f"settle is {due.start.settle}" if due.refused is None else f"refused: {due.refused.why}"
        yield f"starts nothing before {_at(until)}: {why}; the last change was at {_at(due.changed_at)}"
    if not has_room(view.live, profile):
        yield f"what is due waits for the end of a run: {runs} under way, and no more may be at once"
    may_start = not is_held and until <= now and has_room(view.live, profile)
    known = {name: facts.dataset for name, facts in view.datasets.items() if facts.dataset is not None}
    dates = {run.logical_date for run in view.live}
    for target in islice(due_targets(due, known, dates, now), MAX_TARGETS):
        yield f"{_name(due, target)}: {_why(due, target, view.datasets.__getitem__, may_start=may_start)}"
        may_start &= target.left is None


def _why(
    due: Due, due_target: DueTarget, view: Callable[[DatasetName], DatasetView], *, may_start: bool
) -> str:
    if due_target.is_live:
        return "a run of it is under way, and another one follows, because its data have changed since"
    if due_target.read is not None:
        target = (
            target_of(due.schedule, due_target.target.end)
            if due.schedule and due_target.target
            else RunTarget()
        )
        return (
            f"waits for {lacks(due_target.read, target, view(due_target.read.dataset)) or due_target.lacks}"
        )
    if due_target.not_before is not None:
        return f"starts at {_at(due_target.not_before)}, when its time is over"
    if due_target.left is None:
        return "is complete; it starts after older ones, because too many separate times are due"
    return (
        "is complete: the leader starts its run next" if may_start else "is complete, and waits for its turn"
    )


def _name(due: Due, target: DueTarget) -> str:
    if due.schedule is None or target.target is None:
        return f"changed: {', '.join(due.changed)}"
    interval = target_of(due.schedule, target.target.end).data_interval or target.target
    return shown(interval, due.schedule.timezone)


def _unchanged(due: Due) -> str:
    started = "none was started yet"
    if due.started_at is not None:
        started = f"the last start was at {_at(due.started_at)}"
    if due.changed:
        left = sorted({read.dataset for read in due.starting} - set(due.changed))
        return f"waits for a change of {', '.join(left)} (`data: all`); {started}"
    names = ", ".join(sorted({read.dataset for read in due.starting}))
    changed = "" if due.changed_at is None else f", the last change at {_at(due.changed_at)}"
    return f"nothing is due: {names} did not change since; {started}{changed}"


def _at(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
