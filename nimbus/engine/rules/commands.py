"""Commands: each is answered in the transaction that acts on it, so it is done exactly once."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import assert_never

from nimbus.definition.rendering import TemplateError
from nimbus.domain import lifecycle
from nimbus.domain.catalog import PipelineRecord, PipelineState, ReleaseOf
from nimbus.domain.commands import (
    Abdicate,
    Abdication,
    ActivatePipeline,
    CommandOutcome,
    PausePipeline,
    PublishRelease,
    QueuedCommand,
    RemovePipeline,
    StartRun,
    StopRun,
    Unreadable,
)
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import InvalidNameError, PipelineName, run_id
from nimbus.domain.parameters import InvalidParametersError
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.run import RunCause, RunState
from nimbus.domain.writes import (
    ConsumeCommand,
    CreatePipeline,
    CreateRun,
    PutAbdication,
    PutPipeline,
    PutRun,
    RemovePipelineRecord,
    Write,
)
from nimbus.engine.decision import Decision, PrepareRelease
from nimbus.engine.facts import Facts, Refusal, Subject, with_run
from nimbus.engine.rules.new_run import new_run


def answer_command(facts: Facts, now: datetime) -> Decision | None:
    """Answer the oldest command that can be answered.

    One that waits for its release holds back later ones about the same pipeline, and no others.
    """
    held: set[PipelineName] = set()
    for queued in facts.commands:
        pipeline = getattr(queued.command, "pipeline", None)
        if pipeline in held or Subject("command", queued.id) in facts.set_aside:
            continue
        try:
            decision = _answer(facts, queued, now)
        except RefusedError as exc:
            decision = _consumed(facts, queued, now, code=exc.code, message=str(exc))
        if decision is not None:
            return decision
        held.add(PipelineName(str(pipeline)))
    return None


def refuse_command(facts: Facts, queued: QueuedCommand, code: str, why: str, now: datetime) -> Decision:
    """Refuse a command that could not be acted on: it must not come back for ever."""
    return _consumed(
        facts, queued, now, code=code, message=f"it could not be done, and changed nothing: {why}"
    )


def _answer(facts: Facts, queued: QueuedCommand, now: datetime) -> Decision | None:
    match queued.command:
        case PublishRelease() as command:
            return _publish(facts, queued, command, now)
        case ActivatePipeline() as command:
            return _activate(facts, queued, command, now)
        case PausePipeline() as command:
            return _pause(facts, queued, command, now)
        case RemovePipeline() as command:
            return _remove(facts, queued, command, now)
        case StartRun() as command:
            return _start(facts, queued, command, now)
        case StopRun() as command:
            return _stop(facts, queued, command, now)
        case Abdicate() as command:
            abdication = Abdication(epoch=facts.epoch, reason=command.reason)
            return _consumed(
                replace(facts, abdication=abdication),
                queued,
                now,
                message=f"leadership of epoch {facts.epoch} is given up",
                writes=(PutAbdication(abdication),),
            )
        case Unreadable(reason=reason):
            raise RefusedError("unreadable_command", reason)
        case _:
            assert_never(queued.command)


def _consumed(
    facts: Facts,
    queued: QueuedCommand,
    now: datetime,
    *,
    message: str,
    code: str = "ok",
    writes: tuple[Write, ...] = (),
) -> Decision:
    """The end of a command: out of the queue, outcome written, in one transaction with what it changes."""
    outcome = CommandOutcome(
        command=queued.id,
        accepted=code == "ok",
        code=code,
        message=message,
        decided_at=now,
        epoch=facts.epoch,
    )
    rest = tuple(other for other in facts.commands if other.id != queued.id)
    return Decision(
        name="command_accepted" if outcome.accepted else "command_refused",
        facts=replace(facts, commands=rest),
        writes=(*writes, ConsumeCommand(outcome)),
        about={"command": queued.id, "type": queued.command.type, "code": code, "message": message},
    )


def _known(facts: Facts, name: PipelineName) -> PipelineRecord:
    record = facts.pipelines.get(name)
    if record is None:
        raise RefusedError(
            "unknown_pipeline",
            f"pipeline {name} is not in the catalog: publish it first (`nimbus pipeline publish`).",
        )
    return record


def _prepared(facts: Facts, release: ReleaseOf) -> PipelineSpec | Decision | None:
    """A release's definition on this disk; a decision to fetch it; None while that is under way."""
    if release in facts.preparing:
        return None
    found = facts.prepared.get(release)
    if found is None:
        return Decision(
            name="release_preparation_started",
            facts=replace(facts, preparing=facts.preparing | {release}),
            effects=(PrepareRelease(release),),
            about={"pipeline": release.pipeline, "release": release.digest},
        )
    if isinstance(found, Refusal):
        raise RefusedError(found.code, found.message)
    return found


def _forget(facts: Facts, release: ReleaseOf) -> Facts:
    """A preparation serves one command: the next one asks the disk again."""
    return replace(facts, prepared={k: v for k, v in facts.prepared.items() if k != release})


def _publish(facts: Facts, queued: QueuedCommand, command: PublishRelease, now: datetime) -> Decision | None:
    release = ReleaseOf(command.pipeline, command.digest)
    try:
        spec = _prepared(facts, release)
    except RefusedError as exc:
        return _consumed(_forget(facts, release), queued, now, code=exc.code, message=str(exc))
    if spec is None or isinstance(spec, Decision):
        return spec
    before = facts.pipelines.get(command.pipeline)
    if before is None:
        record = PipelineRecord(
            name=command.pipeline,
            state=PipelineState.INACTIVE,
            published=command.digest,
            published_spec=spec,
            updated_at=now,
        )
    else:
        record = replace(before, published=command.digest, published_spec=spec, updated_at=now)
    if command.activate:
        record = _activated(record, release, spec, now)
    write = CreatePipeline(record) if before is None else PutPipeline(record)
    said = "published and activated" if command.activate else "published"
    return _consumed(
        replace(_forget(facts, release), pipelines={**facts.pipelines, record.name: record}),
        queued,
        now,
        message=f"{said} release {command.digest[:12]} of {command.pipeline}",
        writes=(write,),
    )


def _activate(
    facts: Facts, queued: QueuedCommand, command: ActivatePipeline, now: datetime
) -> Decision | None:
    record = _known(facts, command.pipeline)
    release = ReleaseOf(record.name, command.digest or record.published)
    try:
        spec = _prepared(facts, release)
    except RefusedError as exc:
        return _consumed(_forget(facts, release), queued, now, code=exc.code, message=str(exc))
    if spec is None or isinstance(spec, Decision):
        return spec
    active = _activated(record, release, spec, now)
    return _consumed(
        replace(_forget(facts, release), pipelines={**facts.pipelines, active.name: active}),
        queued,
        now,
        message=f"release {release.digest[:12]} of {record.name} is active",
        writes=(PutPipeline(active),),
    )


def _activated(
    record: PipelineRecord, release: ReleaseOf, spec: PipelineSpec, now: datetime
) -> PipelineRecord:
    """Fire times that passed while the pipeline was inactive or paused are not made up for."""
    fresh = record.state is not PipelineState.ACTIVE or record.schedule_position is None
    return replace(
        record,
        state=PipelineState.ACTIVE,
        release=release.digest,
        spec=spec,
        schedule_position=now if fresh else record.schedule_position,
        updated_at=now,
    )


def _pause(facts: Facts, queued: QueuedCommand, command: PausePipeline, now: datetime) -> Decision:
    record = _known(facts, command.pipeline)
    if record.state is PipelineState.INACTIVE:
        raise RefusedError(
            "not_active", f"pipeline {record.name} was never activated: there is nothing to pause."
        )
    paused = replace(record, state=PipelineState.PAUSED, updated_at=now)
    return _consumed(
        replace(facts, pipelines={**facts.pipelines, paused.name: paused}),
        queued,
        now,
        message=f"{record.name} is paused: its schedule does not fire; runs under way go on",
        writes=(PutPipeline(paused),),
    )


def _remove(facts: Facts, queued: QueuedCommand, command: RemovePipeline, now: datetime) -> Decision:
    record = _known(facts, command.pipeline)
    # Of all runs: one that is set aside is live, too.
    live = sorted(
        run.id for run in facts.runs.values() if run.pipeline == record.name and not run.state.is_final
    )
    if live:
        raise RefusedError(
            "pipeline_in_use",
            f"pipeline {record.name} has live runs ({', '.join(live)}): stop them or wait for them.",
        )
    return _consumed(
        replace(facts, pipelines={k: v for k, v in facts.pipelines.items() if k != record.name}),
        queued,
        now,
        message=f"{record.name} is out of the catalog; its releases and history stay in storage",
        writes=(RemovePipelineRecord(record.name),),
    )


def _start(facts: Facts, queued: QueuedCommand, command: StartRun, now: datetime) -> Decision:
    try:
        run_id(command.run_id)  # it becomes part of paths
    except InvalidNameError as exc:
        raise RefusedError(exc.code, str(exc)) from exc
    record = _known(facts, command.pipeline)
    same = facts.runs.get(command.run_id)
    if same is not None:
        if same.pipeline != record.name:
            raise RefusedError(
                "run_exists", f"run {command.run_id} is there already, of pipeline {same.pipeline}."
            )
        return _consumed(
            facts, queued, now, message=f"run {same.id} was started before; nothing is started twice"
        )
    if record.release is None or record.spec is None:
        raise RefusedError(
            "not_active",
            f"pipeline {record.name} has no active release: `nimbus pipeline activate {record.name}`.",
        )
    if record.name in facts.quarantined:
        raise RefusedError(
            "quarantined", f"pipeline {record.name} is quarantined: {facts.quarantined[record.name]}"
        )
    try:
        run = new_run(
            record.spec,
            record.release,
            run_id=command.run_id,
            parameters=command.parameters,
            logical_date=command.logical_date or now,
            cause=RunCause.MANUAL,
            priority=command.priority,
            now=now,
        )
    except (InvalidParametersError, TemplateError) as exc:
        raise RefusedError(exc.code, str(exc)) from exc
    return _consumed(
        with_run(facts, run),
        queued,
        now,
        message=f"run {run.id} of release {run.release[:12]} started",
        writes=(CreateRun(run),),
    )


def _stop(facts: Facts, queued: QueuedCommand, command: StopRun, now: datetime) -> Decision:
    run = facts.runs.get(command.run_id)
    if run is None:
        raise RefusedError("unknown_run", f"run {command.run_id} is not live (any more): nothing to stop.")
    if run.state.is_final:
        raise RefusedError("run_finished", f"run {run.id} has {run.state} already: nothing to stop.")
    stopped = lifecycle.stop(run, verdict=RunState.STOPPED, reason=f"stopped: {command.reason}", now=now)
    return _consumed(
        with_run(facts, stopped),
        queued,
        now,
        message=f"run {run.id} is being stopped",
        writes=(PutRun(stopped),),
    )
