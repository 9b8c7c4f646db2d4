"""Commands about pipelines: publish, activate, pause, rewind, remove, and set the owner.

Each function returns the message of the answer and the writes, or what must come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from nimbus.access.rules import check_new
from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, Profile, ReleaseOf, profile_of
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs import lifecycle
from nimbus.domain.runs.drafts import Draft
from nimbus.domain.runs.run import Run, RunCause, RunState
from nimbus.domain.starts.due import consumer_of
from nimbus.domain.wording import some_of
from nimbus.engine.decision import Answer, Done
from nimbus.engine.rules.commands.backfills import backfills_of, check_none_open
from nimbus.engine.rules.commands.checks import known_pipeline
from nimbus.engine.rules.release_checks import prepared_release
from nimbus.engine.rules.run_starts import built
from nimbus.engine.state import State
from nimbus.engine.work_queue import Key


def pipeline_changed(
    state: State, queued: c.QueuedCommand, command: c.PipelineCommand, now: datetime
) -> Done | Answer:
    """The result of a command, or what must come first.

    Raises RefusedError: the command cannot be carried out.
    """
    match command:
        case c.PublishRelease():
            return _publish(state, queued, command, now)
        case c.ActivatePipeline():
            return _activate(state, queued, command, now)
        case c.PausePipeline():
            return _pause(state, command, now)
        case c.RewindSchedule():
            return _rewind(state, command, now)
        case c.RemovePipeline():
            return _remove(state, command)
        case c.SetOwner():
            record = known_pipeline(state, command.pipeline)
            owned = replace(record, owner=command.owner, updated_at=now)
            message = f"{record.name} {f'belongs to {command.owner}' if command.owner else 'has no owner'}"
            return message, (w.PutPipeline(owned, record),)


def _publish(
    state: State, queued: c.QueuedCommand, command: c.PublishRelease, now: datetime
) -> Done | Answer:
    release = ReleaseOf(command.pipeline, command.digest)
    before = state.catalog.pipelines.get(command.pipeline)
    first = None if queued.asked_by is None else queued.asked_by.owner
    owner = first if before is None else before.owner
    spec = prepared_release(state, release, owner)
    if not isinstance(spec, PipelineSpec):
        return spec
    if queued.asked_by is not None:
        known = {*state.catalog.datasets, *(() if before is None else before.profile.datasets)}
        for dataset in sorted({*spec.datasets} - known):
            check_new(queued.asked_by, "dataset", dataset, state.settings.grants)
    record = replace(published(before, release, spec, now), owner=owner)
    runs: tuple[w.Write, ...] | Answer = ()
    consumer: tuple[w.Write, ...] = ()
    if command.activate:
        record = activated(record, release, spec, now)
        runs = handed_over(state, queued, release, spec, now)
        consumer = consumer_put(state, spec)
    if not isinstance(runs, tuple):
        return runs
    said = "published and activated" if command.activate else "published"
    put = w.CreatePipeline(record) if before is None else w.PutPipeline(record, before)
    message = f"{said} release {command.digest[:12]} of {command.pipeline}{_said_of(runs)}"
    return message, (put, *consumer, *runs)


def _activate(
    state: State, queued: c.QueuedCommand, command: c.ActivatePipeline, now: datetime
) -> Done | Answer:
    record = known_pipeline(state, command.pipeline)
    release = ReleaseOf(record.name, command.digest or record.published)
    spec = prepared_release(state, release, record.owner)
    if not isinstance(spec, PipelineSpec):
        return spec
    active = activated(record, release, spec, now)
    runs = handed_over(state, queued, release, spec, now)
    if not isinstance(runs, tuple):
        return runs
    message = f"release {release.digest[:12]} of {record.name} is active{_said_of(runs)}"
    consumer = consumer_put(state, spec, drop=command.drop_due)
    return message, (w.PutPipeline(active, record), *consumer, *runs)


def _said_of(runs: tuple[w.Write, ...]) -> str:
    """What an activation does with runs that are kept running, as a part of its answer."""
    stopped = [f"; run {write.run.id} is being stopped" for write in runs if isinstance(write, w.PutRun)]
    then = " when that has ended" if stopped else ""
    started = [f"; run {write.run.id} starts{then}" for write in runs if isinstance(write, w.CreateRun)]
    return "".join((*stopped, *started))


def _pause(state: State, command: c.PausePipeline, now: datetime) -> Done:
    record = known_pipeline(state, command.pipeline)
    if record.state is PipelineState.INACTIVE:
        raise RefusedError(
            "not_active", f"pipeline {record.name} was never activated: there is nothing to pause."
        )
    paused = replace(record, state=PipelineState.PAUSED, updated_at=now)
    message = f"{record.name} is paused: its schedule does not fire; runs under way go on"
    return message, (w.PutPipeline(paused, record),)


def _rewind(state: State, command: c.RewindSchedule, now: datetime) -> Done:
    record = known_pipeline(state, command.pipeline)
    back = rewound(record, now)
    if back is None:
        return f"the schedule of {record.name} is not ahead of the leader's clock: nothing to set back", ()
    message = (
        f"the schedule of {record.name} goes on from {now:%Y-%m-%d %H:%M:%S}Z, back from "
        f"{record.furthest:%Y-%m-%d %H:%M:%S}Z: {command.reason}"
    )
    return message, (w.PutPipeline(back, record),)


def _remove(state: State, command: c.RemovePipeline) -> Done:
    record = known_pipeline(state, command.pipeline)
    live = sorted(state.runs.of(record.name))
    if live:
        raise RefusedError(
            "pipeline_in_use",
            f"pipeline {record.name} has {len(live)} live runs ({some_of(live)}): stop or await them.",
        )
    check_none_open(state, record)
    index = state.catalog.intervals.get(record.name)
    return f"{record.name} is out of the catalog; its releases and history stay in storage", (
        w.RemovePipelineRecord(record),
        *consumer_removed(state, record.name),
        *backfills_of(state, record),
        *(() if index is None else (w.PutIntervals(record.name, None, index),)),
    )


def published(
    before: PipelineRecord | None, release: ReleaseOf, spec: PipelineSpec, now: datetime
) -> PipelineRecord:
    """The record with `release` as its newest release."""
    if before is None:
        return PipelineRecord(
            name=release.pipeline,
            state=PipelineState.INACTIVE,
            published=release.digest,
            profile=profile_of(spec),
            updated_at=now,
        )
    return replace(
        before,
        published=release.digest,
        profile=profile_of(spec) if before.release is None else before.profile,
        updated_at=now,
    )


def activated(
    record: PipelineRecord, release: ReleaseOf, spec: PipelineSpec, now: datetime
) -> PipelineRecord:
    """The record with `release` active. A new or changed schedule starts now, without missed fire times.

    No fire time is fired twice, although the clock of an earlier leader may have been ahead of ours.
    """
    profile = profile_of(spec)
    times, known = _times(profile), _times(record.profile)
    done = {name: at for name, at in record.positions.items() if at > now}  # of schedules that may come back
    for name in ("", *times):
        position = record.positions.get(name, record.schedule_position)
        same = record.state is PipelineState.ACTIVE and known.get(name) == times.get(name)
        done[name] = position if same and position else max(now, position or now)
    return replace(
        record,
        state=PipelineState.ACTIVE,
        release=release.digest,
        profile=profile,
        schedule_position=done.pop(""),
        positions=done,
        updated_at=now,
    )


def rewound(record: PipelineRecord, now: datetime) -> PipelineRecord | None:
    """The record with the position set back to now; None: it is not ahead.

    Fire times between now and the former position may have had their runs. `rewound_from` keeps them from
    having a second one.
    """
    position = record.furthest
    if position is None or position <= now:
        return None
    former = position if record.rewound_from is None else max(position, record.rewound_from)
    return replace(
        record,
        schedule_position=min(now, record.schedule_position or now),
        positions={name: min(now, position) for name, position in record.positions.items()},
        rewound_from=former,
        updated_at=now,
    )


def _times(profile: Profile) -> dict[str, tuple[object, ...]]:
    """The fields that decide the fire times, by schedule. `catchup` only decides about missed ones."""
    return {} if profile.starts_by_data else {schedule.name: schedule.times for schedule in profile.schedules}


def consumer_put(state: State, spec: PipelineSpec, *, drop: bool = False) -> tuple[w.PutDue, ...]:
    """The write that an activation needs. `drop`: nothing stays due. A new consumer has nothing due."""
    before = state.catalog.due.get(spec.name)
    due = consumer_of(spec, before)
    if due is None:
        return consumer_removed(state, spec.name)
    due = due.dropped() if drop else due
    return () if due == before else (w.PutDue(spec.name, due, before),)


def consumer_removed(state: State, name: PipelineName) -> tuple[w.PutDue, ...]:
    """The write that removes a consumer; empty: it is none."""
    before = state.catalog.due.get(name)
    return () if before is None else (w.PutDue(name, None, before),)


def handed_over(
    state: State, queued: c.QueuedCommand, release: ReleaseOf, spec: PipelineSpec, now: datetime
) -> tuple[w.Write, ...] | Answer:
    """The writes that activate a release for its kept run, or what to do before they are known.

    Live runs of other releases are stopped. The new run is queued until they have ended, because such a
    pipeline has a `concurrency.limit` of 1. An activation of the release that is running changes nothing.

    Raises RefusedError: the run cannot be built.
    """
    stopped, goes_on = list[w.Write](), False
    reason = f"release {release.digest[:12]} is activated"
    for live in kept_runs(state, release.pipeline):
        if live.release == release.digest and live.verdict is None:
            goes_on = True
        elif (ended := lifecycle.stop(live, verdict=RunState.STOPPED, reason=reason, now=now)) is not live:
            stopped.append(w.PutRun(ended, live))
    if goes_on or not spec.keeps_running:
        return tuple(stopped)
    draft = Draft(
        # The id is derived from the command, so that two leaders cannot start its run twice.
        id=RunId(f"{release.pipeline}-{queued.submitted_at:%Y%m%dt%H%M%Sz}-{queued.id}"),
        pipeline=release.pipeline,
        release=release.digest,
        parameters={},
        logical_date=queued.submitted_at,
        cause=RunCause.ACTIVATION,
        asked_at=now,
        submitted_by=queued.submitted_by,
    )
    run = built(state, Key("command", queued.id), draft)
    if not isinstance(run, Run):
        return run
    return (*stopped, w.CreateRun(run if run.state.is_final else lifecycle.queued(run)))


def kept_runs(state: State, pipeline: PipelineName) -> Iterator[Run]:
    """Live runs of a pipeline that are kept running."""
    runs = (state.runs.live[run] for run in sorted(state.runs.of(pipeline)))
    return (run for run in runs if run.keeps_running)
