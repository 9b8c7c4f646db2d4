"""Routes of commands about existing runs."""

from __future__ import annotations

from fastapi import APIRouter

from nimbus.api.models import CommandModel
from nimbus.api.models_runs import RequestedRunModel
from nimbus.api.requests import MarkBody, NoteBody, ReasonBody, RerunBody, RunIdText, TaskNameText
from nimbus.api.routes_pipelines import known_pipeline
from nimbus.api.routes_runs import make_run_id, unknown_task
from nimbus.api.run_lookup import find_run, find_run_or_request, refuse_used_id
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Submit
from nimbus.domain.commands import MarkTask, NoteRun, PauseRun, ResumeRun, StartRun, StopRun
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.selection import Scope, Selection
from nimbus.domain.task_run import TaskState


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["runs"], prefix=f"{prefix}/runs")

    @routes.post("/{run_id}/stop", status_code=202, responses=ACCEPTED_RESPONSES)
    async def stop(run_id: RunIdText, body: ReasonBody, submit: Submit) -> CommandModel:
        """End a run: no new task starts, running tasks are stopped. A pending run does not begin."""

        def made() -> StopRun:
            found = find_run_or_request(services, run_id)
            is_pending = isinstance(found, RequestedRunModel) and found.state == "pending"
            stopped = RunId(run_id) if is_pending else _live(services, run_id, "stop")
            return StopRun(run_id=stopped, reason=body.reason)

        return await submit(made)

    @routes.post("/{run_id}/pause", status_code=202, responses=ACCEPTED_RESPONSES)
    async def pause(run_id: RunIdText, submit: Submit) -> CommandModel:
        """Pause a run: no new task starts; running tasks go on, and its deadline still counts."""
        return await submit(lambda: PauseRun(run_id=_live(services, run_id, "pause")))

    @routes.post("/{run_id}/resume", status_code=202, responses=ACCEPTED_RESPONSES)
    async def resume(run_id: RunIdText, submit: Submit) -> CommandModel:
        """Resume a paused run."""
        return await submit(lambda: ResumeRun(run_id=_live(services, run_id, "resume")))

    @routes.post("/{run_id}/rerun", status_code=202, responses=ACCEPTED_RESPONSES)
    async def rerun(run_id: RunIdText, body: RerunBody, submit: Submit) -> CommandModel:
        """Repeat an ended run as a new run. Tasks that need not be repeated are reused."""
        return await submit(lambda: _rerun(services, run_id, body))

    @routes.post("/{run_id}/tasks/{task}/mark", status_code=202, responses=ACCEPTED_RESPONSES)
    async def mark(run_id: RunIdText, task: TaskNameText, body: MarkBody, submit: Submit) -> CommandModel:
        """Set a waiting task to succeeded or skipped without running it."""

        def made() -> MarkTask:
            live = _live(services, run_id, "mark")
            return MarkTask(run_id=live, task=TaskName(task), state=body.state, reason=body.reason)

        return await submit(made)

    _add_note(routes, services)
    return routes


def _add_note(routes: APIRouter, services: ApiServices) -> None:
    @routes.put("/{run_id}/note", status_code=202, responses=ACCEPTED_RESPONSES)
    async def note(run_id: RunIdText, body: NoteBody, submit: Submit) -> CommandModel:
        """Note something about an ended run, such as the cause of its failure. Replaces the note before."""

        def made() -> NoteRun:
            run = find_run(services, run_id)
            if body.task is not None and body.task not in run.tasks:
                raise unknown_task(run, body.task)
            task = None if body.task is None else TaskName(body.task)
            return NoteRun(run_id=run.id, pipeline=run.pipeline, text=body.text, task=task)

        return await submit(made)


def _rerun(services: ApiServices, run_id: str, body: RerunBody) -> StartRun:
    """A start with the parameters and dates of the earlier run."""
    if bool(body.tasks) is not (body.scope in ("only", "from", "upto")):
        raise RefusedError("bad_selection", "only, from and upto need tasks; all and failed take none.")
    if body.marks and not body.reason:
        raise RefusedError("no_reason", "marks need a reason.")
    earlier = find_run(services, run_id)
    known_pipeline(services, earlier.pipeline)
    if body.run_id:
        refuse_used_id(services, body.run_id)
    return StartRun(
        pipeline=earlier.pipeline,
        run_id=RunId(body.run_id) if body.run_id else make_run_id(earlier.pipeline, services.clock.now()),
        parameters=earlier.parameters,
        logical_date=earlier.logical_date,
        data_interval=earlier.data_interval,
        priority=earlier.priority,
        release=earlier.release if body.release == "same" else None,
        selection=Selection(
            scope=Scope(body.scope),
            tasks=tuple(TaskName(name) for name in body.tasks),
            reuse=earlier.id,
            is_rerun=True,
            keeps_releases=body.release == "same",
            marks={TaskName(name): TaskState(state) for name, state in body.marks.items()},
            reason=body.reason,
        ),
    )


def _live(services: ApiServices, run_id: str, verb: str) -> RunId:
    """The id of a run that is not final. Raises RefusedError if it is."""
    run = find_run(services, run_id)
    if run.state.is_final:
        raise RefusedError("run_finished", f"run {run_id} has {run.state} already: nothing to {verb}.")
    return run.id
