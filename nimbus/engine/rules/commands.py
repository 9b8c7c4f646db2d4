"""Commands: each is answered in the transaction that carries it out, so it is done exactly once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from nimbus.access.rules import check_new
from nimbus.domain import commands as c
from nimbus.domain import writes as w
from nimbus.domain.access import AccessDeniedError
from nimbus.domain.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.drafts import Draft
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import CommandId, InvalidNameError, PipelineName, run_id
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.run import Run, RunCause, RunState
from nimbus.domain.settings import why_held
from nimbus.domain.wording import counted, some_of
from nimbus.engine.agenda import about_command
from nimbus.engine.decision import Answer, Decision, Nothing, PrepareRelease, Refusal
from nimbus.engine.rules.backfill_commands import (
    backfills_of,
    check_none_open,
    created,
    pinned_release,
    steered,
)
from nimbus.engine.rules.catalog import activated, published, put, rewound
from nimbus.engine.rules.command_checks import check_access, check_unchanged
from nimbus.engine.rules.concurrency import queued_if_full
from nimbus.engine.rules.consumers import consumer_put, consumer_removed
from nimbus.engine.rules.dataset_commands import dataset_changed
from nimbus.engine.rules.kept import check_second, handed_over
from nimbus.engine.rules.live_runs import changed_run
from nimbus.engine.rules.new_run import built
from nimbus.engine.rules.outcome import outcome_of
from nimbus.engine.rules.purges import noted, purge_ordered
from nimbus.engine.rules.release_checks import check_release
from nimbus.engine.rules.selections import next_parts
from nimbus.engine.rules.settings import changed
from nimbus.engine.rules.terms import check_successor
from nimbus.engine.state import State


def answer_command(state: State, command: CommandId, now: datetime) -> Answer:
    """Answer a command, unless an older one about the same pipeline or run waits."""
    queued = state.commands.waiting.get(command)
    if queued is None:
        return Nothing()
    try:
        queued = check_access(state, queued, now)
    except AccessDeniedError as exc:
        return _consumed(state, queued, now, code=exc.code, message=str(exc))
    if isinstance(queued.command, c.StopRun) and (starts := state.commands.waiting_reruns(queued)):
        return _withdrawn(state, queued, queued.command, starts, now)
    if not state.commands.lines.is_first(queued):
        return Nothing()
    try:
        return _answer(state, queued, now)
    except RefusedError as exc:
        return _consumed(state, queued, now, code=exc.code, message=str(exc))


def _withdrawn(
    state: State, queued: c.QueuedCommand, stop: c.StopRun, starts: Iterable[c.QueuedCommand], now: datetime
) -> Decision:
    """Stop a rerun that still waits for the end of the run that it repeats: refuse its start at once."""
    by = f" by {queued.submitted_by}" if queued.submitted_by else ""
    why = f"run {stop.run_id} was stopped{by} before it began: {stop.reason}"
    refused = (_consumed(state, start, now, code="withdrawn", message=why) for start in starts)
    writes = tuple(write for decision in refused for write in decision.writes)
    said = f"run {stop.run_id} is withdrawn: it never began"
    return _consumed(state, queued, now, message=said, writes=writes)


def refuse_command(state: State, queued: c.QueuedCommand, code: str, why: str, now: datetime) -> Decision:
    """Refuse a command whose decision failed, so that it does not stay in the queue for ever."""
    done = queued.command.queued if isinstance(queued.command, c.ActOnSelection) else 0
    what = f"ended after {counted(done, 'command')}" if done else "could not be done, and changed nothing"
    return _consumed(state, queued, now, code=code, message=f"it {what}: {why}")


def _answer(state: State, queued: c.QueuedCommand, now: datetime) -> Answer:
    check_unchanged(state, queued)
    command = queued.command
    if isinstance(command, c.PipelineCommand):
        return _answer_about_pipeline(state, queued, command, now)
    if isinstance(command, c.LiveRunCommand):
        message, writes = changed_run(state, command, queued.submitted_by, now)
        return _consumed(state, queued, now, message=message, writes=writes)
    if isinstance(command, c.SettingsCommand | c.TokenCommand | c.AccessCommand):
        return _set(state, queued, command, now)
    if isinstance(command, c.PurgeRuns | c.NoteRun | c.DatasetCommand):
        return _with_storage(state, queued, command, now)
    match command:
        case c.StartRun():
            return _start(state, queued, command, now)
        case c.CreateBackfill() | c.SteerBackfill():
            return _backfill(state, queued, command, now)
        case c.ActOnSelection():
            return _select(state, queued, command, now)
        case c.Abdicate():
            return _abdicate(state, queued, command, now)
        case c.Unreadable(reason=reason):
            raise RefusedError("unreadable_command", reason)
        case _:
            assert_never(command)


def _set(
    state: State,
    queued: c.QueuedCommand,
    command: c.SettingsCommand | c.TokenCommand | c.AccessCommand,
    now: datetime,
) -> Decision:
    settings, message = changed(state, command, queued.submitted_by, now)
    return _consumed(state, queued, now, message=message, writes=(w.PutSettings(settings),))


def _with_storage(
    state: State, queued: c.QueuedCommand, command: c.PurgeRuns | c.NoteRun | c.DatasetCommand, now: datetime
) -> Answer:
    """Answer a command that may first have to store something."""
    if isinstance(command, c.PurgeRuns | c.NoteRun):
        said = (
            noted(state, queued, command, now)
            if isinstance(command, c.NoteRun)
            else purge_ordered(state, queued, command, now)
        )
        return _consumed(state, queued, now, message=said) if isinstance(said, str) else said
    done = dataset_changed(state, queued, command, now)
    return _consumed(state, queued, now, message=done[0], writes=done[1]) if isinstance(done, tuple) else done


def _select(state: State, queued: c.QueuedCommand, command: c.ActOnSelection, now: datetime) -> Answer:
    """Queue the next commands of a selection; with the last ones the selection is answered."""
    parts, rest = next_parts(queued, command, state.catalog.pipelines, now)
    writes = tuple(w.PutCommand(part, is_new=True) for part in parts)
    if rest.targets:
        return Decision(
            name="selection_continued",
            writes=(*writes, w.PutCommand(replace(queued, command=rest), is_new=False)),
            about={"command": queued.id, "queued": str(rest.queued), "left": str(len(rest.targets))},
        )
    what = counted(rest.queued, "command")
    said = f"{what} queued, from {c.part_of(queued.id, 0)} on: `nimbus command list --of {queued.id}`"
    return _consumed(state, queued, now, message=said, writes=writes)


def _abdicate(state: State, queued: c.QueuedCommand, command: c.Abdicate, now: datetime) -> Decision:
    if command.to:
        check_successor(state, command.to)
    by = queued.submitted_by if queued.asked_by is None else queued.asked_by.name
    abdication = c.Abdication(epoch=state.epoch, reason=command.reason, to=command.to, by=by, at=now)
    to = f" to {command.to}" if command.to else ""
    return _consumed(
        state,
        queued,
        now,
        message=f"leadership of epoch {state.epoch} is given up{to}",
        writes=(w.PutAbdication(abdication),),
    )


def _answer_about_pipeline(
    state: State,
    queued: c.QueuedCommand,
    command: c.PipelineCommand,
    now: datetime,
) -> Answer:
    match command:
        case c.PublishRelease():
            return _publish(state, queued, command, now)
        case c.ActivatePipeline():
            return _activate(state, queued, command, now)
        case c.PausePipeline():
            return _pause(state, queued, command, now)
        case c.RewindSchedule():
            return _rewind(state, queued, command, now)
        case c.RemovePipeline():
            return _remove(state, queued, command, now)
        case c.SetOwner():
            return _set_owner(state, queued, command, now)


def _consumed(
    state: State,
    queued: c.QueuedCommand,
    now: datetime,
    *,
    message: str,
    code: str = "ok",
    writes: tuple[w.Write, ...] = (),
) -> Decision:
    """The end of a command: one transaction removes it, writes its outcome and does its changes."""
    outcome = outcome_of(state, queued, code=code, message=message, now=now)
    return Decision(
        name="command_accepted" if outcome.accepted else "command_refused",
        writes=(*writes, w.ConsumeCommand(outcome)),
        about={
            "command": queued.id,
            "type": queued.command.type,
            "by": queued.submitted_by,
            "code": code,
            "message": message,
        },
    )


def _known(state: State, name: PipelineName) -> PipelineRecord:
    record = state.catalog.pipelines.get(name)
    if record is None:
        raise RefusedError(
            "unknown_pipeline",
            f"pipeline {name} is not in the catalog: publish it first (`nimbus pipeline publish`).",
        )
    return record


def _prepared(state: State, release: ReleaseOf, owner: str | None) -> PipelineSpec | Answer:
    """A release's definition from this disk, or a decision to fetch it, or `Nothing` while it is fetched.

    `owner`: of its pipeline.

    Raises:
        RefusedError: the release is not available.
    """
    if release in state.commands.releases.under_way:
        return Nothing()
    found = state.commands.releases.results.get(release)
    if found is None:
        return Decision(
            name="release_preparation_started",
            effects=(PrepareRelease(release),),
            about={"pipeline": release.pipeline, "release": release.digest},
        )
    if isinstance(found, Refusal):
        raise RefusedError(found.code, found.message)
    found = found.with_days(state.settings.days_of)
    check_release(state, found, owner)
    return found


def _publish(state: State, queued: c.QueuedCommand, command: c.PublishRelease, now: datetime) -> Answer:
    release = ReleaseOf(command.pipeline, command.digest)
    before = state.catalog.pipelines.get(command.pipeline)
    first = None if queued.asked_by is None else queued.asked_by.owner
    owner = first if before is None else before.owner
    spec = _prepared(state, release, owner)
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
    return _consumed(
        state,
        queued,
        now,
        message=f"{said} release {command.digest[:12]} of {command.pipeline}{_said_of(runs)}",
        writes=(put(record, before), *consumer, *runs),
    )


def _activate(state: State, queued: c.QueuedCommand, command: c.ActivatePipeline, now: datetime) -> Answer:
    record = _known(state, command.pipeline)
    release = ReleaseOf(record.name, command.digest or record.published)
    spec = _prepared(state, release, record.owner)
    if not isinstance(spec, PipelineSpec):
        return spec
    active = activated(record, release, spec, now)
    runs = handed_over(state, queued, release, spec, now)
    if not isinstance(runs, tuple):
        return runs
    return _consumed(
        state,
        queued,
        now,
        message=f"release {release.digest[:12]} of {record.name} is active{_said_of(runs)}",
        writes=(put(active, record), *consumer_put(state, spec, drop=command.drop_due), *runs),
    )


def _said_of(runs: tuple[w.Write, ...]) -> str:
    """What an activation does with runs that are kept running, as a part of its answer."""
    stopped = [f"; run {write.run.id} is being stopped" for write in runs if isinstance(write, w.PutRun)]
    then = " when that has ended" if stopped else ""
    started = [f"; run {write.run.id} starts{then}" for write in runs if isinstance(write, w.CreateRun)]
    return "".join((*stopped, *started))


def _pause(state: State, queued: c.QueuedCommand, command: c.PausePipeline, now: datetime) -> Decision:
    record = _known(state, command.pipeline)
    if record.state is PipelineState.INACTIVE:
        raise RefusedError(
            "not_active", f"pipeline {record.name} was never activated: there is nothing to pause."
        )
    paused = replace(record, state=PipelineState.PAUSED, updated_at=now)
    return _consumed(
        state,
        queued,
        now,
        message=f"{record.name} is paused: its schedule does not fire; runs under way go on",
        writes=(put(paused, record),),
    )


def _rewind(state: State, queued: c.QueuedCommand, command: c.RewindSchedule, now: datetime) -> Decision:
    record = _known(state, command.pipeline)
    back = rewound(record, now)
    if back is None:
        message = f"the schedule of {record.name} is not ahead of the leader's clock: nothing to set back"
        return _consumed(state, queued, now, message=message)
    message = (
        f"the schedule of {record.name} goes on from {now:%Y-%m-%d %H:%M:%S}Z, back from "
        f"{record.furthest:%Y-%m-%d %H:%M:%S}Z: {command.reason}"
    )
    return _consumed(state, queued, now, message=message, writes=(put(back, record),))


def _set_owner(state: State, queued: c.QueuedCommand, command: c.SetOwner, now: datetime) -> Decision:
    record = _known(state, command.pipeline)
    owned = replace(record, owner=command.owner, updated_at=now)
    message = f"{record.name} {f'belongs to {command.owner}' if command.owner else 'has no owner'}"
    return _consumed(state, queued, now, message=message, writes=(put(owned, record),))


def _remove(state: State, queued: c.QueuedCommand, command: c.RemovePipeline, now: datetime) -> Decision:
    record = _known(state, command.pipeline)
    live = sorted(state.runs.of(record.name))
    if live:
        raise RefusedError(
            "pipeline_in_use",
            f"pipeline {record.name} has {len(live)} live runs ({some_of(live)}): stop or await them.",
        )
    check_none_open(state, record)
    index = state.catalog.intervals.get(record.name)
    return _consumed(
        state,
        queued,
        now,
        message=f"{record.name} is out of the catalog; its releases and history stay in storage",
        writes=(
            w.RemovePipelineRecord(record),
            *consumer_removed(state, record.name),
            *backfills_of(state, record),
            *(() if index is None else (w.PutIntervals(record.name, None, index),)),
        ),
    )


def _start(state: State, queued: c.QueuedCommand, command: c.StartRun, now: datetime) -> Answer:
    try:
        run_id(command.run_id)  # it becomes part of paths
    except InvalidNameError as exc:
        raise RefusedError(exc.code, str(exc)) from exc
    record = _known(state, command.pipeline)
    same = state.runs.live.get(command.run_id) or state.runs.finished.get(command.run_id)
    if same is not None:
        if same.pipeline != record.name:
            raise RefusedError("run_exists", f"run {command.run_id} exists already, of another pipeline.")
        return _consumed(
            state, queued, now, message=f"run {command.run_id} was started before; nothing is started twice"
        )
    if command.rerun_of in state.runs.live:
        return Nothing()  # the end of that run puts the command on the agenda
    release = command.release or record.release
    if release is None:
        raise RefusedError(
            "not_active",
            f"pipeline {record.name} has no active release: `nimbus pipeline activate {record.name}`.",
        )
    if record.name in state.catalog.quarantined:
        raise RefusedError(
            "quarantined", f"pipeline {record.name} is quarantined: {state.catalog.quarantined[record.name]}"
        )
    draft = Draft(
        id=command.run_id,
        pipeline=record.name,
        release=release,
        parameters=command.parameters,
        logical_date=command.logical_date or now,
        data_interval=command.data_interval,
        cause=RunCause.MANUAL,
        priority=command.priority,
        asked_at=now,
        submitted_by=queued.submitted_by,
        selection=command.selection,
    )
    run = built(state, about_command(queued.id), draft)
    if not isinstance(run, Run):
        return run
    check_second(state, run)
    run = queued_if_full(state, run)
    what = "is queued" if run.state is RunState.QUEUED else "started"
    if run.state is RunState.QUEUED and (held := why_held(record, state.settings.holds)) is not None:
        what += f": {held}"
    return _consumed(
        state,
        queued,
        now,
        message=f"run {run.id} of release {run.release[:12]} {what}",
        writes=(w.CreateRun(run),),
    )


def _backfill(
    state: State, queued: c.QueuedCommand, command: c.CreateBackfill | c.SteerBackfill, now: datetime
) -> Answer:
    if isinstance(command, c.SteerBackfill):
        message, writes = steered(state, command, now)
        return _consumed(state, queued, now, message=message, writes=writes)
    record = _known(state, command.pipeline)
    same = state.catalog.backfills.get(command.backfill)
    if same is not None and same.pipeline == record.name:
        return _consumed(
            state, queued, now, message=f"backfill {same.id} was created before: it is {same.state}"
        )
    release = ReleaseOf(record.name, pinned_release(command, record))
    spec = _prepared(state, release, record.owner)
    if not isinstance(spec, PipelineSpec):
        return spec
    message, writes = created(state, queued, command, record, spec, now)
    return _consumed(state, queued, now, message=message, writes=writes)
