"""Routes about runs and their logs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response

from nimbus.api import views
from nimbus.api.explain.facts import cluster_facts
from nimbus.api.models import CommandModel
from nimbus.api.models_runs import (
    RequestedRunModel,
    ResultsModel,
    RunModel,
    RunNoteModel,
    RunReadsModel,
    RunsModel,
    TimelineModel,
    purged_part,
)
from nimbus.api.paging import (
    CursorText,
    Key,
    Paging,
    Where,
    decoded,
    encoded,
    unknown_cursor,
)
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import ApprovalBody, PipelineNameText, RunIdText, StartRunBody
from nimbus.api.routes_pipelines import known_pipeline
from nimbus.api.run_lookup import MAX_RUNS, FoundRun, find_run, find_run_or_request, list_runs, refuse_used_id
from nimbus.api.seen import sees_data_of
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Submit
from nimbus.api.timeline import key_of, timeline
from nimbus.domain.commands import DecideApproval, StartRun
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.intervals import DataInterval
from nimbus.domain.outputs import has_result, kept_results
from nimbus.domain.purge import Said
from nimbus.domain.run import Part, Run, RunPlace
from nimbus.domain.selection import Scope, Selection
from nimbus.domain.task_run import TaskRun
from nimbus.ports import Kept

MAX_LOG_BYTES = 1 << 20
"""Limit of one answer; a client continues at `X-Log-End`."""


MAX_RESULTS = 500
"""In one answer."""


def make_run_id(pipeline: str, now: datetime) -> RunId:
    """A run id `<pipeline>-<UTC time>-<6 hex>`, which sorts by time and is unique by its random part."""
    return RunId(f"{pipeline}-{now:%Y%m%dt%H%M%Sz}-{secrets.token_hex(3)}")


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["runs"], prefix=f"{prefix}/runs")

    @routes.get("")
    def runs(
        where: Annotated[Where, Query()],
        limit: Annotated[int, Query(ge=1, le=MAX_RUNS)] = 50,
        cursor: CursorText = None,
    ) -> RunsModel:
        """Live runs and runs in history, newest first. A page may be short without being the last."""
        found = list_runs(services, where.filter, limit=limit, after=run_place(decoded(cursor)))
        return RunsModel(
            runs=[views.run_summary(run, archived=archived) for run, archived in found.rows],
            history_complete=found.complete,
            next_cursor=None if found.next_after is None else encoded(found.next_after),
            at_least=found.at_least,
        )

    @routes.post("", status_code=202, responses=ACCEPTED_RESPONSES)
    async def start(body: StartRunBody, submit: Submit) -> CommandModel:
        """Start a run. With the caller's `run_id`, a repeated request starts one run."""
        return await submit(lambda: _start(services, body))

    @routes.get("/{run_id}")
    def run(run_id: RunIdText) -> RunModel | RequestedRunModel:
        """One run: tasks, attempts, progress, and why waiting tasks wait.

        It can be read as soon as the start is answered: `pending` until a leader decides, or `refused`.
        """
        found = find_run_or_request(services, run_id)
        return shown_run(services, found) if isinstance(found, FoundRun) else found

    @routes.get("/{run_id}/reads")
    def reads(run_id: RunIdText) -> RunReadsModel:
        """The versions of datasets that a run reads."""
        pins = find_run(services, run_id).pins
        shown = {name: list(map(views.version_model, versions)) for name, versions in pins.items()}
        return RunReadsModel(run_id=run_id, reads=shown)

    @routes.get("/{run_id}/results")
    def results(
        run_id: RunIdText,
        task: Annotated[str | None, Query(description="Results of this task alone.")] = None,
    ) -> ResultsModel:
        """Results of a run's tasks, of 500 tasks at most."""
        return list_results(services, run_id, task)

    @routes.get("/{run_id}/timeline")
    def events(run_id: RunIdText, paging: Paging) -> TimelineModel:
        """What happened in a run, oldest first."""
        found = timeline(find_run(services, run_id))
        page = paging.page(found.events, key_of)
        update = {"events": page.rows, "next_cursor": page.next_cursor, "at_least": page.at_least}
        return found.model_copy(update=update)

    @routes.post("/{run_id}/tasks/{task}/approval", status_code=202, responses=ACCEPTED_RESPONSES)
    async def approve(
        run_id: RunIdText, task: PipelineNameText, body: ApprovalBody, submit: Submit
    ) -> CommandModel:
        """Approve or reject a waiting task of type `approval`. Repeating the same decision is accepted."""
        return await submit(
            DecideApproval(
                run_id=RunId(run_id),
                task=TaskName(task),
                approved=body.approved,
                reason=body.reason,
            )
        )

    @routes.get(
        "/{run_id}/tasks/{task}/log",
        response_class=Response,
        responses={
            200: {"content": {"text/plain": {}}, "description": "Bytes of the log, as the task wrote them."}
        },
    )
    def log(
        run_id: RunIdText,
        task: str,
        attempt: Annotated[int | None, Query(ge=1, description="Without it: the last one.")] = None,
        offset: Annotated[int, Query(ge=0, le=1 << 53)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_LOG_BYTES)] = MAX_LOG_BYTES,
    ) -> Response:
        """A piece of an attempt's log, while it grows and afterwards.

        `X-Log-End` is the next offset to request. `X-Attempt-State` is `open`, or how the attempt ended
        (`ended` for an early one that the run's record only counts).
        """
        data, headers = _kept(services, Kept.LOG, (run_id, task, attempt), offset, limit)
        return Response(data, media_type="text/plain; charset=utf-8", headers=headers)

    @routes.get(
        "/{run_id}/tasks/{task}/events",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}, "description": "Bytes, zstd."}},
    )
    def event_log(
        run_id: RunIdText,
        task: str,
        attempt: Annotated[int | None, Query(ge=1, description="Without it: the last one.")] = None,
        offset: Annotated[int, Query(ge=0, le=1 << 53)] = 0,
        limit: Annotated[int, Query(ge=1, le=MAX_LOG_BYTES)] = MAX_LOG_BYTES,
    ) -> Response:
        """A piece of Spark's event log of an attempt that has ended, with the headers of a log.

        Empty: the attempt has none (`spark.event_log`), or it is not stored yet.
        """
        data, headers = _kept(services, Kept.EVENTS, (run_id, task, attempt), offset, limit)
        return Response(data, media_type="application/octet-stream", headers=headers)

    return routes


def run_place(key: Key | None) -> RunPlace | None:
    """The place in a cursor. Raises NotFoundError if it belongs to another list."""
    match key:
        case None:
            return None
        case (int(seconds), str(name)):
            return RunPlace(seconds, name)
        case _:
            raise unknown_cursor()


def _kept(
    services: ApiServices, kept: Kept, place: tuple[str, str, int | None], offset: int, limit: int
) -> tuple[bytes, dict[str, str]]:
    """A piece of an attempt's log, and the headers about it. `place`: run, task, attempt."""
    run_id, task, attempt = place
    found = find_run(services, run_id)
    number, state = known_attempt(found, task, attempt)
    if (gone := purged_parts(services, found).get(Part.LOGS)) is not None:
        raise NotFoundError("log_purged", f"logs of run {found.id} were {gone}.")
    # The state is read before the bytes, so that "ended, and no more bytes" is reliable.
    data = services.logs.read(AttemptId(found.id, TaskName(task), number), offset, limit, kept)
    unstored = "" if data or state == "open" else unstored_log(services, found, task, number)
    return data, {
        **({"X-Log-Unstored": unstored.encode("ascii", "replace").decode()} if unstored else {}),
        "X-Log-Offset": str(offset),
        "X-Log-End": str(offset + len(data)),
        "X-Attempt": str(number),
        "X-Attempt-State": state,
        "X-Run-State": found.state.value,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def unstored_log(services: ApiServices, run: Run, task: str, number: int) -> str:
    """Why the log of an ended attempt may not be in storage; empty: its worker has stored all logs."""
    ran_on = next((one.worker for one in run.tasks[TaskName(task)].attempts if one.number == number), None)
    workers = services.reader.workers() if ran_on is not None else ()
    told = next((worker.unstored_logs for worker in workers if worker.id == ran_on), "")
    told = " ".join(told.split())
    return told and f"worker {ran_on} has logs on its disk that storage does not accept: {told}"


def shown_run(services: ApiServices, found: FoundRun, only: Sequence[TaskRun] | None = None) -> RunModel:
    """A run for the API, with the slots of open attempts. `only`: the tasks that it shows; None: all."""
    run = found.run
    named = run.tasks if only is None else {task.spec.name for task in only}
    opened = () if run.state.is_final else (one for one in run.open_attempts() if one.task in named)
    slots = services.reader.slots(opened)
    facts, servers = cluster_facts(services), services.spark_history
    shown = views.run_model(run, slots, facts, servers, archived=found.archived, only=only)
    gone = purged_parts(services, run) if found.archived else {}
    parts = [purged_part(part, said) for part, said in gone.items()]
    return shown.model_copy(update={"purged": parts, "noted": _noted(services, run)})


def _noted(services: ApiServices, run: Run) -> RunNoteModel | None:
    try:
        note = services.history.note(run.id) if run.state.is_final else None
    except NimbusError as exc:
        if not exc.retryable:
            raise
        return None
    if note is None:
        return None
    return RunNoteModel(text=note.what.text, task=note.what.task, by=note.by, at=note.at)


def purged_parts(services: ApiServices, run: Run) -> Mapping[Part, Said]:
    """The purged parts of a run. A run that has not ended has none."""
    gone = services.history.purged(run.id) if run.state.is_final else None
    return {} if gone is None else gone.parts


def list_results(services: ApiServices, run_id: str, task: str | None) -> ResultsModel:
    """Results of a run's tasks, of 500 at most, or of one task. Raises NotFoundError."""
    found = find_run_or_request(services, run_id)
    run = found.run if isinstance(found, FoundRun) else find_run(services, run_id)
    if task is not None and task not in run.tasks:
        raise unknown_task(run, task)
    names = [name for name, of in run.tasks.items() if has_result(of) and task in (None, name)]
    shown = names[:MAX_RESULTS]
    if isinstance(found, FoundRun) and found.archived:
        kept = services.history.results(run.id) if shown else {}
        given = {name: kept[name] for name in shown if name in kept}
    else:
        given = dict(kept_results(run, shown, services.reader.slots, services.history.results))
    texts = {str(name): result for name, result in given.items()}
    return ResultsModel(run_id=run.id, results=texts, complete=len(shown) == len(names))


def _start(services: ApiServices, body: StartRunBody) -> StartRun:
    record = known_pipeline(services, body.pipeline)
    if body.run_id:
        refuse_used_id(services, body.run_id)
    reuse = None if body.selection is None else body.selection.reuse
    if reuse is not None and not sees_data_of(services, reuse):
        raise NotFoundError("unknown_run", f"there is no run {reuse}: see `nimbus run list`.")
    return StartRun(
        pipeline=record.name,
        run_id=RunId(body.run_id) if body.run_id else make_run_id(record.name, services.clock.now()),
        parameters=body.parameters,
        logical_date=body.logical_date,
        data_interval=_interval(body),
        priority=body.priority,
        selection=_selection(body),
    )


def _selection(body: StartRunBody) -> Selection | None:
    """The requested tasks; None: all."""
    given = body.selection
    if given is None:
        return None
    names = tuple(TaskName(name) for name in given.tasks)
    reuse = None if given.reuse is None else RunId(given.reuse)
    return Selection(scope=Scope(given.scope), tasks=names, reuse=reuse)


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


def unknown_task(run: Run, task: str) -> NotFoundError:
    """The error that a run has no such task."""
    return NotFoundError(
        "unknown_task", f"run {run.id} has no task {task}; it has {', '.join(sorted(run.tasks))}."
    )


def known_attempt(run: Run, task: str, number: int | None) -> tuple[int, str]:
    """Number and state of the requested attempt; without a number, of the last one.

    Raises:
        NotFoundError: there is no such task, or no such attempt.
    """
    known = run.tasks.get(TaskName(task))
    if known is None:
        raise unknown_task(run, task)
    if known.reused is not None:
        raise NotFoundError(
            "no_attempt", f"task {task} of run {run.id} is reused: its log is that of run {known.reused.run}."
        )
    if not known.attempts:
        raise NotFoundError(
            "no_attempt", f"task {task} of run {run.id} is {known.state} and was not tried yet."
        )
    if number is not None and number > known.tried:
        raise NotFoundError(
            "unknown_attempt",
            f"task {task} of run {run.id} has no attempt {number}; the last is {known.tried}.",
        )
    wanted = known.tried if number is None else number
    kept = next((attempt for attempt in known.attempts if attempt.number == wanted), None)
    if kept is None:
        return wanted, "ended"
    return wanted, kept.outcome.value if kept.outcome else "open"
