"""Routes that explain why something is not running."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query

from nimbus.api import views
from nimbus.api.explain.data import DueView
from nimbus.api.explain.facts import cluster_facts, dataset_view, queue_view
from nimbus.api.explain.pipeline import PipelineView, explain_pipeline, explained_first
from nimbus.api.explain.run import (
    ExplanationModel,
    ReasonModel,
    explain_run,
    explain_task,
    explanation,
    run_reasons,
)
from nimbus.api.explain.task import ClusterFacts, why_parked
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import PipelineNameText, RunIdText
from nimbus.api.routes.backfills import explained
from nimbus.api.routes.pipelines import known_pipeline
from nimbus.api.runs.lookup import FoundRun, find_run_or_request, live_runs
from nimbus.api.runs.models import RequestedRunModel
from nimbus.api.services import ApiServices
from nimbus.domain.attempts.slots import Slots
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.runs.run import Run
from nimbus.records import UnreadableRecordError

MAX_REASONS = 100


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["explanations"], prefix=prefix)

    @routes.get("/runs/{run_id}/explanation")
    def run(
        run_id: RunIdText,
        task: Annotated[PipelineNameText | None, Query(description="Explain only this task.")] = None,
    ) -> ExplanationModel:
        """Why a run or one of its tasks is not running: what it waits for, and what would end the wait."""
        return explained_run(services, run_id, task)

    @routes.get("/pipelines/{name}/explanation")
    def pipeline(name: PipelineNameText) -> ExplanationModel:
        """Why a pipeline is not running: state, schedule, limits, live runs, backfills, commands."""
        return explained_pipeline(services, known_pipeline(services, name))

    return routes


def explained_run(services: ApiServices, run_id: str, task: str | None = None) -> ExplanationModel:
    """Explain a run, or one of its tasks; also a requested run that is not started.

    Raises ObjectNotFoundError: there is no such run, or no such task.
    """
    try:
        found_run = find_run_or_request(services, run_id)
    except UnreadableRecordError as exc:
        unread = ReasonModel(about="run", why=f"the leader leaves it out, since its record is broken: {exc}")
        return explanation(run_id, "unreadable", [unread], MAX_REASONS)
    if not isinstance(found_run, FoundRun):
        reason = ReasonModel(about="run", why=_requested(services, found_run))
        return explanation(run_id, found_run.state, [reason], MAX_REASONS)
    run = found_run.run
    slots = {} if run.state.is_final else services.reader.slots(run.open_attempts())
    facts = cluster_facts(services)
    if task is None:
        return explanation(run.id, run.state, explain_run(run, slots, facts), MAX_REASONS)
    of = run.tasks.get(TaskName(task))
    if of is None:
        raise ObjectNotFoundError("unknown_task", f"run {run.id} has no task {task}.")
    return explanation(run.id, run.state, [explain_task(run, of, slots, facts)], MAX_REASONS)


def _requested(services: ApiServices, request: RequestedRunModel) -> str:
    """Why a requested run does not exist yet."""
    if request.state == "refused" or request.reason:
        return request.reason
    queued_as = request.command.command_id
    queued = f"its start, command {queued_as}, waits"
    about = (
        other
        for other in services.reader.commands()
        if getattr(other.command, "pipeline", None) == request.pipeline
    )
    if (parked := why_parked(cluster_facts(services).parked(), "command", queued_as)) is not None:
        return f"{queued}: {parked}"
    before = sum(other.id < queued_as for other in about)
    behind = f" behind {before} older commands of pipeline {request.pipeline}" if before else ""
    if services.health.leader() is None:
        return f"{queued}{behind}: no scheduler leads at the moment; it is decided once one does"
    return f"{queued}{behind} for the leader, which may have to fetch the release first"


def explained_pipeline(services: ApiServices, record: PipelineRecord) -> ExplanationModel:
    """Explain a pipeline."""
    reasons = explain_pipeline(record, pipeline_view(services, record, cluster_facts(services)))
    return explanation(record.name, record.state, reasons, MAX_REASONS)


def _due_view(services: ApiServices, record: PipelineRecord) -> DueView | None:
    due = services.reader.due(record.name) if record.profile.starts_by_data else None
    if due is None:
        return None
    return DueView(
        due=due,
        datasets={read.dataset: dataset_view(services, read.dataset) for read in due.reads},
        live=live_runs(services, record.name),
    )


def pipeline_view(services: ApiServices, record: PipelineRecord, facts: ClusterFacts) -> PipelineView:
    """Read the facts that the runs of a pipeline depend on."""
    reader, name, schedulers = services.reader, record.name, facts.schedulers()
    backfills = [
        backfill
        for backfill in reader.backfills()
        if backfill.pipeline == name and not backfill.state.is_over
    ]
    queue = queue_view(services, facts.schedulers, name, record)
    first = explained_first(queue.live, name)
    runs = reader.runs(first)
    slots = reader.slots(attempt for run in runs.values() for attempt in run.open_attempts())
    return PipelineView(
        now=facts.now,
        leader=facts.leader,
        quarantined=views.quarantined(schedulers).get(name),
        lacking={
            scheduler.id: [file.path for file in scheduler.missing if file.pipeline == name]
            for scheduler in schedulers
            if any(file.pipeline == name for file in scheduler.missing)
        },
        parents=[other.name for other in reader.pipelines() if name in other.profile.children],
        queue=queue,
        runs=runs.values(),
        why_runs=[_live_run(run_id, runs.get(run_id), slots, facts) for run_id in first],
        backfills=[(backfill, explained(services, backfill).why or "") for backfill in backfills],
        due=_due_view(services, record),
        parked=facts.parked(),
        commands=[
            queued for queued in reader.commands() if getattr(queued.command, "pipeline", None) == name
        ],
    )


def _live_run(
    run_id: RunId, run: Run | None, slots: Mapping[AttemptId, Slots], facts: ClusterFacts
) -> ReasonModel:
    """The first reason of a live run, with the number of further ones."""
    if run is None:
        return ReasonModel(about=f"run {run_id}", why="it has gone, or its record is broken")
    reasons = run_reasons(run, slots, facts)
    first = reasons[0]() if reasons else ReasonModel(about="run", why="it ends next")
    of = "" if first.about == "run" else f"{first.about}: "
    more = f"; `nimbus run explain {run.id}` has {len(reasons) - 1} more" if len(reasons) > 1 else ""
    return ReasonModel(about=f"run {run.id}", why=f"{run.state}: {of}{first.why}{more}", until=first.until)
