"""Selections: the same command for several runs or pipelines, queued a few at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from itertools import islice

from nimbus.domain.commands import (
    ActivatePipeline,
    ActOnSelection,
    Command,
    PausePipeline,
    PauseRun,
    QueuedCommand,
    ResumeRun,
    StartRun,
    StopRun,
    part_of,
)
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.runs.selection import Scope, Selection

PARTS_AT_ONCE = 6
"""How many commands of a selection are queued together. See `nimbus.engine.state.commands.PARTS_EVERY_S`."""


def next_parts(
    queued: QueuedCommand,
    command: ActOnSelection,
    pipelines: Mapping[PipelineName, PipelineRecord],
    now: datetime,
) -> tuple[list[QueuedCommand], ActOnSelection]:
    """The next commands of a selection, and the selection after them.

    The commands have the requester of `queued`, whose permission is checked for each of them. `now` is in the
    ids of reruns.
    """
    targets = iter(command.targets.items())
    parts = []
    for number, (name, of) in enumerate(islice(targets, PARTS_AT_ONCE), command.queued):
        part = part_of(queued.id, number)
        new = f"{now:%Y%m%dt%H%M%Sz}-{part.removeprefix('cmd-').lstrip('0')}"  # no two commands have the same
        made = _part(command, name, of, pipelines, new)
        parts.append(replace(queued, id=part, command=made, key=None))
    return parts, replace(command, targets=dict(targets), queued=command.queued + len(parts))


def _part(
    command: ActOnSelection, name: str, of: str, pipelines: Mapping[PipelineName, PipelineRecord], new: str
) -> Command:
    """The command for one target. `new`: the end of a new run's id."""
    run, pipeline = RunId(name), PipelineName(name)
    match command.action:
        case "stop":
            return StopRun(run_id=run, reason=command.reason)
        case "rerun":
            again = Selection(
                scope=Scope(command.scope),
                reuse=run,
                is_rerun=True,
                is_copy=True,
                keeps_releases=command.same_release,
                reason=command.reason,
            )
            return StartRun(pipeline=PipelineName(of), run_id=RunId(f"{of}-{new}"), selection=again)
        case "pause":
            return PauseRun(run_id=run) if command.of == "runs" else PausePipeline(pipeline=pipeline)
        case "resume" if command.of == "runs":
            return ResumeRun(run_id=run)
        case "resume":
            record = pipelines.get(pipeline)
            active = None if record is None else record.release
            return ActivatePipeline(pipeline=pipeline, digest=active or ReleaseDigest(of))
