"""Starts by data: a publication marks what is due; a run is created when its inputs are complete.

Both are one transaction each, with the publication and with the run, so no start is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from nimbus.definition.targets import (
    DueTarget,
    changed_since,
    due_targets,
    facts_of,
    newest,
    overlapping,
    target_of,
)
from nimbus.domain.data.publications import KEY_PATTERN, Read, Version, interval_in
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import DatasetName, PipelineName, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.intervals import DataInterval, within
from nimbus.domain.pipelines.pipeline import Schedule
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.runs.run import DataCause, Run, RunCause
from nimbus.domain.starts.due import Due, RefusedStart, cause_of, changes, has_room
from nimbus.domain.writes import CreateRun, PutDataset, PutDue, PutRun
from nimbus.engine.decision import Answer, Decision, NoDecision
from nimbus.engine.rules.run_starts import built, queued_if_full
from nimbus.engine.state import State
from nimbus.engine.work_queue import Key

SUBMITTED_BY = "data"
"""The requester of a run that data have started."""


def with_due(state: State, decision: Decision, now: datetime) -> Decision:
    """The decision, with what its changes of datasets make due.

    Every change of a partition's version counts, whichever rule writes it: see `changes`. What a run pins
    with `take: new` is no longer due; if it succeeds and has left something, that is due.
    """
    known: dict[PipelineName, Due] = {}
    for write in decision.writes:
        if isinstance(write, PutRun) and write.run.pins is not write.before.pins:
            due = known.get(write.run.pipeline) or state.catalog.due.get(write.run.pipeline)
            if due is not None and (left := _without_pinned(state, due, write)) is not due:
                known[due.pipeline] = left
        if not isinstance(write, PutDataset):
            continue
        for consumer in state.catalog.consumers_of(write.dataset.name):
            before = due = known.get(consumer.pipeline, consumer)
            for version in (*changes(write.dataset, write.before), *_left(write, due)):
                due = _marked(due, version, write.dataset.name, now)
            if due is not before:
                known[due.pipeline] = due
    if not known:
        return decision
    puts = (PutDue(name, due, state.catalog.due[name]) for name, due in known.items())
    return replace(decision, writes=(*decision.writes, *puts))


def _without_pinned(state: State, due: Due, write: PutRun) -> Due:
    """A consumer without the changes that a run pins: of datasets whose last change is among them."""
    for read in write.run.reads:
        if read.new and read.name in write.run.pins.keys() - write.before.pins.keys():
            dataset = state.catalog.datasets.get(read.dataset)
            last = max((version.sequence for version in write.run.pins[read.name]), default=0)
            if dataset is not None and not dataset.has_since(max(last, dataset.taken_by(due.pipeline))):
                due = due.without_change(read.dataset)
    return due


def _left(write: PutDataset, due: Due) -> Iterator[Version]:
    """The newest version, if a run of a consumer has read a part of what is new, and has succeeded."""
    before = None if write.before is None else write.before.taken.get(due.pipeline)
    taken, newest = write.dataset.taken.get(due.pipeline), write.dataset.newest
    if taken is None or taken == before or newest is None or write.dataset.name in due.changed:
        return
    if write.dataset.has_since(taken.sequence):
        yield newest


def _marked(due: Due, version: Version, dataset: DatasetName, now: datetime) -> Due:
    """A consumer after a change; the same if the change makes nothing due."""
    cause = cause_of(dataset, version, now)
    reads = [read for read in due.starting if read.dataset == dataset and _may_read(read, version)]
    if due.schedule is None:
        return due.with_change(cause, ()) if reads else due
    targets = [of_read for read in reads if (of_read := _targets(read, due.schedule, cause)) is not None]
    return due.with_change(cause, targets) if targets else due


def _may_read(read: Read, version: Version) -> bool:
    return version.partition == read.key or KEY_PATTERN.fullmatch(read.key) is None


def _targets(read: Read, schedule: Schedule, cause: DataCause) -> DataInterval | None:
    """The time of the targets that a change makes due. Data without interval concern the newest target."""
    interval = interval_in(cause.partition)
    if interval is None or read.latest or read.new:
        return newest(schedule, cause.at)
    return overlapping(read, schedule, interval)


def start_by_data(state: State, record: PipelineRecord, now: datetime) -> Answer:
    """Create the run of the oldest target that is due and complete, if another run is allowed."""
    due = state.catalog.due.get(record.name)
    if due is None or not due.is_due or record.release is None:
        return NoDecision()
    if record.state is not PipelineState.ACTIVE or not state.catalog.may_start(record.name):
        return NoDecision()
    live = [state.runs.live[run] for run in state.runs.of(record.name)]
    if Key("pipeline", record.name) in state.builds.under_way or not has_room(live, record.profile):
        return NoDecision()  # the end of a run queues it
    if now < (after := due.may_start_at):
        dated = due.dated_by(now)
        if dated == due:
            return NoDecision(at=after)
        return Decision(name="due_dated_again", writes=(PutDue(record.name, dated, due),))
    dates = {run.logical_date for run in live}
    facts, before = facts_of(due, state.catalog.datasets), state.catalog.lacks.get(record.name)
    only, all_lack = None if before is None else changed_since(before, facts), True
    for target in due_targets(due, state.catalog.datasets, dates, now, only):
        if target.left is not None:
            return _started(state, record, due, target, now)
        if target.not_before is not None:
            return NoDecision(at=target.not_before)
        all_lack &= target.read is not None
    if all_lack and due.schedule is not None:
        state.catalog.lacks[record.name] = facts
    return NoDecision()  # a publication of what is missing queues it


def _started(state: State, record: PipelineRecord, due: Due, target: DueTarget, now: datetime) -> Answer:
    assert record.release is not None and target.left is not None  # noqa: S101 - see `start_by_data`
    number, targets = due.starts + 1, (target.target,) if target.target else ()
    date = f"{target.target.end:%Y%m%dt%H%M%Sz}" if target.target else "data"
    draft = Draft(
        id=RunId(f"{record.name}-{date}-{number}"),
        pipeline=record.name,
        release=record.release,
        parameters={},
        logical_date=target.target.end if target.target else now,
        data_interval=target_of(due.schedule, target.target.end).data_interval
        if due.schedule and target.target
        else None,
        cause=RunCause.DATA,
        causes=tuple(cause for cause in due.causes if _concerns(due, cause, targets)),
        asked_at=now,
        submitted_by=SUBMITTED_BY,
        may_exist=True,  # of an earlier pipeline of this name, whose starts were counted from 1, too
    )
    try:
        run = built(state, Key("pipeline", record.name), draft)
    except RefusedError as exc:
        refused = None if exc.code == "run_exists" else RefusedStart(why=str(exc), at=now)
        number = number if refused is not None else 2 * number  # there may be thousands of such runs
        return Decision(
            name="data_start_refused",
            writes=(PutDue(due.pipeline, replace(due, starts=number, refused=refused), due),),
            about={"pipeline": record.name, "run": draft.id, "error": str(exc)},
        )
    if not isinstance(run, Run):
        return run
    run = queued_if_full(state, replace(run, causes=draft.causes))  # more may have changed during the build
    return Decision(
        name="started_by_data",
        writes=(PutDue(due.pipeline, _without_used(due.started(target.left, now)), due), CreateRun(run)),
        about={"pipeline": record.name, "run": run.id, "run_state": run.state},
    )


def _without_used(due: Due) -> Due:
    if due.schedule is None:
        return due
    return replace(due, causes=tuple(cause for cause in due.causes if _concerns(due, cause, due.extents)))


def _concerns(due: Due, cause: DataCause, targets: tuple[DataInterval, ...]) -> bool:
    """True when a change is a reason for the run of one of these targets, in order, some of them joined."""
    if due.schedule is None or not targets:
        return True
    reads = (read for read in due.starting if read.dataset == cause.dataset)
    made_due = (_targets(read, due.schedule, cause) for read in reads)
    return any(
        interval.start < target.end and target.start < interval.end
        for interval in made_due
        if interval is not None
        for target in targets[within(targets, interval)]
    )
