"""Routes about the logs of attempts, and about the event logs of their Spark."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import RunIdText
from nimbus.api.runs.lookup import find_run, unknown_task
from nimbus.api.runs.routes import purged_parts
from nimbus.api.services import ApiServices
from nimbus.domain.ids import AttemptId, TaskName
from nimbus.domain.runs.run import Run, RunPart
from nimbus.ports import KeptLog

MAX_LOG_BYTES = 1 << 20
"""Limit of one answer; a client continues at `X-Log-End`."""

_Attempt = Annotated[int | None, Query(ge=1, description="Without it: the last one.")]
_Offset = Annotated[int, Query(ge=0, le=1 << 53)]
_Limit = Annotated[int, Query(ge=1, le=MAX_LOG_BYTES)]


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["runs"], prefix=f"{prefix}/runs")

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
        attempt: _Attempt = None,
        offset: _Offset = 0,
        limit: _Limit = MAX_LOG_BYTES,
    ) -> Response:
        """A piece of an attempt's log, while it grows and afterwards.

        `X-Log-End` is the next offset to request. `X-Attempt-State` is `open`, or how the attempt ended
        (`ended` for an early one that the run's record only counts).
        """
        data, headers = _kept(services, KeptLog.LOG, (run_id, task, attempt), offset, limit)
        return Response(data, media_type="text/plain; charset=utf-8", headers=headers)

    @routes.get(
        "/{run_id}/tasks/{task}/events",
        response_class=Response,
        responses={200: {"content": {"application/octet-stream": {}}, "description": "Bytes, zstd."}},
    )
    def event_log(
        run_id: RunIdText,
        task: str,
        attempt: _Attempt = None,
        offset: _Offset = 0,
        limit: _Limit = MAX_LOG_BYTES,
    ) -> Response:
        """A piece of Spark's event log of an attempt that has ended, with the headers of a log.

        Empty: the attempt has none (`spark.event_log`), or it is not stored yet.
        """
        data, headers = _kept(services, KeptLog.EVENTS, (run_id, task, attempt), offset, limit)
        return Response(data, media_type="application/octet-stream", headers=headers)

    return routes


def _kept(
    services: ApiServices, kept: KeptLog, place: tuple[str, str, int | None], offset: int, limit: int
) -> tuple[bytes, dict[str, str]]:
    """A piece of an attempt's log, and the headers about it. `place`: run, task, attempt."""
    run_id, task, attempt = place
    run = find_run(services, run_id)
    number, state = known_attempt(run, task, attempt)
    if (gone := purged_parts(services, run).get(RunPart.LOGS)) is not None:
        raise ObjectNotFoundError("log_purged", f"logs of run {run.id} were {gone}.")
    # The state is read before the bytes, so that "ended, and no more bytes" is reliable.
    data = services.logs.read(AttemptId(run.id, TaskName(task), number), offset, limit, kept)
    unstored = "" if data or state == "open" else unstored_log(services, run, task, number)
    return data, {
        **({"X-Log-Unstored": unstored.encode("ascii", "replace").decode()} if unstored else {}),
        "X-Log-Offset": str(offset),
        "X-Log-End": str(offset + len(data)),
        "X-Attempt": str(number),
        "X-Attempt-State": state,
        "X-Run-State": run.state.value,
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def unstored_log(services: ApiServices, run: Run, task: str, number: int) -> str:
    """Why the log of an ended attempt may not be in storage; empty: its worker has stored all logs."""
    ran_on = next(
        (attempt.worker for attempt in run.tasks[TaskName(task)].attempts if attempt.number == number), None
    )
    workers = services.reader.workers() if ran_on is not None else ()
    told = next((worker.unstored_logs for worker in workers if worker.id == ran_on), "")
    told = " ".join(told.split())
    return told and f"worker {ran_on} has logs on its disk that storage does not accept: {told}"


def known_attempt(run: Run, task: str, number: int | None) -> tuple[int, str]:
    """Number and state of the requested attempt; without a number, of the last one.

    Raises ObjectNotFoundError: there is no such task, or no such attempt.
    """
    known = run.tasks.get(TaskName(task))
    if known is None:
        raise unknown_task(run, task)
    if known.reused is not None:
        raise ObjectNotFoundError(
            "no_attempt", f"task {task} of run {run.id} is reused: its log is that of run {known.reused.run}."
        )
    if not known.attempts:
        raise ObjectNotFoundError(
            "no_attempt", f"task {task} of run {run.id} is {known.state} and was not tried yet."
        )
    if number is not None and number > known.tried:
        raise ObjectNotFoundError(
            "unknown_attempt",
            f"task {task} of run {run.id} has no attempt {number}; the last is {known.tried}.",
        )
    wanted = known.tried if number is None else number
    kept = next((attempt for attempt in known.attempts if attempt.number == wanted), None)
    if kept is None:
        return wanted, "ended"
    return wanted, kept.outcome.value if kept.outcome else "open"
