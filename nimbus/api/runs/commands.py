"""Commands about runs: start, stop, pause, repeat, approve, mark and note."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BeforeValidator, Field, StrictBool, StringConstraints

from nimbus.api.models import CommandModel
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import (
    DataIntervalBody,
    Moment,
    PipelineNameText,
    ReasonBody,
    ReasonText,
    RequestBody,
    RunIdText,
    StorableParameters,
    TaskNameText,
)
from nimbus.api.routes.pipelines import known_pipeline
from nimbus.api.runs.lookup import find_run, find_run_or_request, refuse_used_id, unknown_task
from nimbus.api.runs.models import RequestedRunModel
from nimbus.api.seen import sees_data_of
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED, Submit
from nimbus.domain.commands import DecideApproval, MarkTask, NoteRun, PauseRun, ResumeRun, StartRun, StopRun
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import Priority
from nimbus.domain.runs.selection import Scope, Selection
from nimbus.domain.runs.task_run import TaskState

_PriorityText = Literal["highest", "high", "medium", "low", "lowest"]


def _priority(value: Any) -> Any:
    """Accept names only: with numbers, callers would depend on an order that may get more steps."""
    names = {priority.name.lower(): priority for priority in Priority}
    if isinstance(value, Priority):
        return value
    if not isinstance(value, str) or value not in names:
        raise ValueError(f"is none of {', '.join(names)}")
    return names[value]


class SelectionBody(RequestBody):
    """Which tasks of a run are executed. The others are left out or reused."""

    scope: Literal["only", "from", "upto"]
    tasks: list[TaskNameText] = Field(min_length=1, max_length=100)
    reuse: RunIdText | None = Field(
        None, description="An ended run. Its successful tasks replace tasks that are not selected."
    )


class RerunBody(RequestBody):
    """Repeat a run, as a new run."""

    run_id: RunIdText | None = Field(None, description="Id of the new run; as in a start.")
    scope: Literal["all", "failed", "only", "from", "upto"]
    tasks: list[TaskNameText] = Field(default_factory=list, max_length=100)
    release: Literal["same", "latest"] = Field("same", description="`latest`: the active one.")
    marks: dict[TaskNameText, Literal["succeeded", "skipped"]] = Field(
        default_factory=dict,
        description="Tasks to set to this state without running them. Needs a reason.",
        json_schema_extra={"additionalProperties": False},  # the names have a pattern
    )
    reason: Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)] = ""


class NoteBody(RequestBody):
    """A note about an ended run."""

    text: Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)]
    task: TaskNameText | None = Field(None, description="The task that it is about.")


class MarkBody(RequestBody):
    """Set the final state of a waiting task."""

    state: Literal["succeeded", "skipped"]
    reason: ReasonText


class StartRunBody(RequestBody):
    """Start a run of the active release."""

    pipeline: PipelineNameText
    run_id: RunIdText | None = Field(
        None, description="With an id, a repeated request starts one run. Without it, the server makes one."
    )
    parameters: StorableParameters = Field(default_factory=dict)
    logical_date: Moment | None = Field(
        None,
        description="The time that the run stands for, with offset. Without it: the end of the data "
        "interval, else the time of acceptance.",
    )
    data_interval: DataIntervalBody | None = Field(
        None, description="Without it, the run has none, and is refused if templates name its start or end."
    )
    priority: Annotated[Priority, BeforeValidator(_priority, json_schema_input_type=_PriorityText)] | None = (
        Field(None, description="highest, high, medium, low or lowest. Without it: the pipeline's.")
    )
    selection: SelectionBody | None = Field(None, description="Without it all tasks are run.")


class ApprovalBody(ReasonBody):
    """Approve or reject a waiting task."""

    approved: StrictBool = Field(True, description="False: rejected; the task fails.")


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["runs"], prefix=f"{prefix}/runs")

    @routes.post("", **ACCEPTED)
    async def start(body: StartRunBody, submit: Submit) -> CommandModel:
        """Start a run. With the caller's `run_id`, a repeated request starts one run."""
        return await submit(lambda: _start(services, body))

    @routes.post("/{run_id}/stop", **ACCEPTED)
    async def stop(run_id: RunIdText, body: ReasonBody, submit: Submit) -> CommandModel:
        """End a run: no new task starts, running tasks are stopped. A pending run does not begin."""

        def made() -> StopRun:
            run = find_run_or_request(services, run_id)
            is_pending = isinstance(run, RequestedRunModel) and run.state == "pending"
            stopped = run_id if is_pending else _live(services, run_id, "stop")
            return StopRun(run_id=stopped, reason=body.reason)

        return await submit(made)

    @routes.post("/{run_id}/pause", **ACCEPTED)
    async def pause(run_id: RunIdText, submit: Submit) -> CommandModel:
        """Pause a run: no new task starts; running tasks go on, and its deadline still counts."""
        return await submit(lambda: PauseRun(run_id=_live(services, run_id, "pause")))

    @routes.post("/{run_id}/resume", **ACCEPTED)
    async def resume(run_id: RunIdText, submit: Submit) -> CommandModel:
        """Resume a paused run."""
        return await submit(lambda: ResumeRun(run_id=_live(services, run_id, "resume")))

    @routes.post("/{run_id}/rerun", **ACCEPTED)
    async def rerun(run_id: RunIdText, body: RerunBody, submit: Submit) -> CommandModel:
        """Repeat an ended run as a new run. Tasks that need not be repeated are reused."""
        return await submit(lambda: _rerun(services, run_id, body))

    @routes.post("/{run_id}/tasks/{task}/mark", **ACCEPTED)
    async def mark(run_id: RunIdText, task: TaskNameText, body: MarkBody, submit: Submit) -> CommandModel:
        """Set a waiting task to succeeded or skipped without running it."""

        def made() -> MarkTask:
            live = _live(services, run_id, "mark")
            return MarkTask(run_id=live, task=task, state=body.state, reason=body.reason)

        return await submit(made)

    @routes.post("/{run_id}/tasks/{task}/approval", **ACCEPTED)
    async def approve(
        run_id: RunIdText, task: TaskNameText, body: ApprovalBody, submit: Submit
    ) -> CommandModel:
        """Approve or reject a waiting task of type `approval`. Repeating the same decision is accepted."""
        decided = DecideApproval(run_id=run_id, task=task, approved=body.approved, reason=body.reason)
        return await submit(decided)

    _add_note(routes, services)
    return routes


def _add_note(routes: APIRouter, services: ApiServices) -> None:
    @routes.put("/{run_id}/note", **ACCEPTED)
    async def note(run_id: RunIdText, body: NoteBody, submit: Submit) -> CommandModel:
        """Note something about an ended run, such as the cause of its failure. Replaces the note before."""

        def made() -> NoteRun:
            run = find_run(services, run_id)
            if body.task is not None and body.task not in run.tasks:
                raise unknown_task(run, body.task)
            return NoteRun(run_id=run.id, pipeline=run.pipeline, text=body.text, task=body.task)

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
        run_id=body.run_id or make_run_id(earlier.pipeline, services.clock.now()),
        parameters=earlier.parameters,
        logical_date=earlier.logical_date,
        data_interval=earlier.data_interval,
        priority=earlier.priority,
        release=earlier.release if body.release == "same" else None,
        selection=Selection(
            scope=Scope(body.scope),
            tasks=tuple(body.tasks),
            reuse=earlier.id,
            is_rerun=True,
            keeps_releases=body.release == "same",
            marks={name: TaskState(state) for name, state in body.marks.items()},
            reason=body.reason,
        ),
    )


def _live(services: ApiServices, run_id: str, verb: str) -> RunId:
    """The id of a run that is not final. Raises RefusedError if it is."""
    run = find_run(services, run_id)
    if run.state.is_final:
        raise RefusedError("run_finished", f"run {run_id} has {run.state} already: nothing to {verb}.")
    return run.id


def make_run_id(pipeline: str, now: datetime) -> RunId:
    """A run id `<pipeline>-<UTC time>-<6 hex>`, which sorts by time and is unique by its random part."""
    return RunId(f"{pipeline}-{now:%Y%m%dt%H%M%Sz}-{secrets.token_hex(3)}")


def _start(services: ApiServices, body: StartRunBody) -> StartRun:
    record = known_pipeline(services, body.pipeline)
    if body.run_id:
        refuse_used_id(services, body.run_id)
    reuse = None if body.selection is None else body.selection.reuse
    if reuse is not None and not sees_data_of(services, reuse):
        raise ObjectNotFoundError("unknown_run", f"there is no run {reuse}: see `nimbus run list`.")
    return StartRun(
        pipeline=record.name,
        run_id=body.run_id or make_run_id(record.name, services.clock.now()),
        parameters=body.parameters,
        logical_date=body.logical_date,
        data_interval=_interval(body),
        priority=body.priority,
        selection=None
        if (given := body.selection) is None
        else Selection(scope=Scope(given.scope), tasks=tuple(given.tasks), reuse=given.reuse),
    )


def _interval(body: StartRunBody) -> DataInterval | None:
    """The requested data interval. Raises RefusedError if it is empty."""
    given = body.data_interval
    if given is None:
        return None
    if given.end <= given.start:
        raise RefusedError(
            "empty_interval",
            f"a data interval ends after it starts; {given.end.isoformat()} is not after "
            f"{given.start.isoformat()}.",
        )
    return DataInterval(start=given.start, end=given.end)
