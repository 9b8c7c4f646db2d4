"""Runs of pipelines with a task that is kept running: at most one is under way, of the active release."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from nimbus.domain import lifecycle
from nimbus.domain.catalog import ReleaseOf
from nimbus.domain.commands import QueuedCommand
from nimbus.domain.drafts import Draft
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.run import Run, RunCause, RunState
from nimbus.domain.writes import CreateRun, PutRun, Write
from nimbus.engine.agenda import about_command
from nimbus.engine.decision import Answer
from nimbus.engine.rules.new_run import built
from nimbus.engine.state import State


def handed_over(
    state: State, queued: QueuedCommand, release: ReleaseOf, spec: PipelineSpec, now: datetime
) -> tuple[Write, ...] | Answer:
    """The writes that activate a release for its kept run, or what to do before they are known.

    Live runs of other releases are stopped. The new run is queued until they have ended, because such a
    pipeline has a `concurrency.limit` of 1. An activation of the release that is running changes nothing.

    Raises:
        RefusedError: the run cannot be built.
    """
    stopped, goes_on = list[Write](), False
    reason = f"release {release.digest[:12]} is activated"
    for live in _live(state, release.pipeline):
        if live.release == release.digest and live.verdict is None:
            goes_on = True
        elif (ended := lifecycle.stop(live, verdict=RunState.STOPPED, reason=reason, now=now)) is not live:
            stopped.append(PutRun(ended, live))
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
    run = built(state, about_command(queued.id), draft)
    if not isinstance(run, Run):
        return run
    return (*stopped, CreateRun(run if run.state.is_final else lifecycle.queued(run)))


def check_second(state: State, run: Run) -> None:
    """Raise RefusedError if a requested run would be kept running beside another one."""
    other = next((live.id for live in _live(state, run.pipeline)), None) if run.keeps_running else None
    if other is not None:
        raise RefusedError(
            "already_running",
            f"run {other} of pipeline {run.pipeline} is kept running, and it ends only when it is stopped: "
            f"`nimbus run stop {other}` first, or activate a release, which does both.",
        )


def _live(state: State, pipeline: PipelineName) -> Iterator[Run]:
    """Live runs of a pipeline that are kept running."""
    runs = (state.runs.live[run] for run in sorted(state.runs.of(pipeline)))
    return (run for run in runs if run.keeps_running)
