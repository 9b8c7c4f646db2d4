"""Routes about outputs of tasks: where they are, their files, and the bytes of one file.

Reading them blocks, for minutes if a folder on a network hangs; `ApiServices.reading` bounds how many
requests do so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache, cached_property
from typing import Annotated, NamedTuple
from urllib.parse import quote

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from nimbus.api.caller import principal
from nimbus.api.models import Model, of
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import FilePathText, RunIdText, TaskNameText
from nimbus.api.runs.lookup import find_run, unknown_task
from nimbus.api.services import ApiServices, OpenedFile, OutputFiles
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.data.datasets import read_grant
from nimbus.domain.data.outputs import ListedFile, Listing, OutputsNotHereError
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.runs.run import Run, RunPart
from nimbus.domain.runs.task_run import Attempt, TaskRun


@of(ListedFile)
class OutputFileModel(Model):
    """One file of an output."""


class OutputModel(Model):
    """The committed output of a task."""

    task: str
    run: str
    """The run whose attempt made it: another one if the task is reused."""
    attempt: int
    reference: str
    """Relative to `worker.data`: a folder, or the key of a manifest."""
    uri: str | None
    """Where its files are; null: `unreadable` says why."""
    worker: str
    host: str | None
    """Name of the worker's host; null: the worker is not registered now."""
    files: list[OutputFileModel]
    """By name: in each folder first the files, then what its folders hold. Links and special files are left
    out, and names that are not Unicode in form NFC, or have control characters or backslashes."""
    truncated: bool
    """More files follow: ask with this `task`, and the last path as `after`."""
    total_files: int | None
    """Of the whole output; null: not known, because the list is truncated."""
    total_bytes: int | None
    unreadable: str
    """Why this scheduler cannot list it, and what to do; empty: it can."""


class OutputsModel(Model):
    """The committed outputs of a run."""

    run_id: str
    outputs: list[OutputModel]
    complete: bool
    """False: the run has more outputs than one answer lists."""


MAX_FILES = 10_000
"""In one answer, of all outputs together."""
MAX_OUTPUTS = 500


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["runs"], prefix=f"{prefix}/runs")

    @routes.get("/{run_id}/outputs")
    async def outputs(
        run_id: RunIdText,
        task: Annotated[TaskNameText | None, Query(description="The output of this task alone.")] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_FILES, description="Files of all outputs together.")] = 1000,
        after: Annotated[str, Query(max_length=1024, description="With `task`: files after this one.")] = "",
    ) -> OutputsModel:
        """Committed outputs of a run's tasks, of 500 tasks at most, with their files."""

        def listed() -> OutputsModel:
            run = find_run(services, run_id)
            return list_outputs(services, run, task, limit=limit, after=after if task else "")

        return await run_sync(listed, limiter=services.reading)

    @routes.get(
        "/{run_id}/tasks/{task}/output",
        response_class=StreamingResponse,
        responses={200: {"content": {"application/octet-stream": {}}, "description": "Bytes of the file."}},
    )
    async def output(
        request: Request, run_id: RunIdText, task: TaskNameText, path: Annotated[FilePathText, Query()]
    ) -> Response:
        """One file of a task's committed output. The answer breaks off if it is not what was committed."""

        def opening() -> OpenedFile:
            return open_output(services, find_run(services, run_id), task, path)

        opened = await run_sync(opening, limiter=services.reading)
        name = quote(path.rpartition("/")[2], safe="")
        headers = {
            "Content-Length": str(opened.file.size_bytes),
            "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        if request.scope.get("is_head"):  # the server would read all of it, and drop it
            return Response(headers=headers, media_type="application/octet-stream")
        pieces = _sent(opened.pieces, services.reading)
        return StreamingResponse(pieces, media_type="application/octet-stream", headers=headers)

    return routes


def list_outputs(
    services: ApiServices, run: Run, task: str | None, *, limit: int, after: str = ""
) -> OutputsModel:
    """Committed outputs of a run, or that of one task. Raises ObjectNotFoundError: it has none."""
    of = _Outputs(services, run)
    named = list(of.all()) if task is None else [of.find(task)]
    shown: list[OutputModel] = []
    for made in named[:MAX_OUTPUTS]:
        shown.append(of.model(made, limit, after))
        limit -= len(shown[-1].files)
    return OutputsModel(run_id=run.id, outputs=shown, complete=len(shown) == len(named))


def open_output(services: ApiServices, run: Run, task: str, path: str) -> OpenedFile:
    """One file of a task's committed output.

    Raises ObjectNotFoundError; AccessDeniedError: it is the content of a dataset that the requester may not
    read; RefusedError: this scheduler cannot read it.
    """
    of = _Outputs(services, run)
    made = of.find(task)
    of.check_reader(made)
    try:
        opened = of.place(made).opened(made.reference, path)
    except OutputsNotHereError as exc:
        raise RefusedError("outputs_not_here", of.elsewhere(made, exc)) from exc
    if opened is None:
        raise ObjectNotFoundError(
            "unknown_file", f"the output of task {task} of run {run.id} has no file {path!r}."
        )
    return opened


async def _sent(pieces: Iterator[bytes], limiter: CapacityLimiter) -> AsyncIterator[bytes]:
    while piece := await run_sync(next, pieces, b"", limiter=limiter):
        yield piece


class _Made(NamedTuple):
    """A committed output."""

    task: TaskName
    run: RunId
    """The run whose attempt made it."""
    attempt: Attempt
    reference: str


class _Outputs:
    """The committed outputs of one run, for one request."""

    def __init__(self, services: ApiServices, run: Run) -> None:
        self._services, self.run = services, run
        self._purged = cache(services.history.purged)

    def all(self) -> Iterator[_Made]:
        """All of them, in the order of the tasks."""
        return (made for task in self.run.tasks.in_order() if (made := self._made(task)) is not None)

    def find(self, name: str) -> _Made:
        """The output of a task. Raises ObjectNotFoundError if there is none."""
        task = self.run.tasks.get(TaskName(name))
        if task is None:
            raise unknown_task(self.run, name)
        if (made := self._made(task)) is None:
            raise ObjectNotFoundError(
                "no_output", f"task {name} of run {self.run.id} is {task.state} and has no committed output."
            )
        return made

    def _made(self, task: TaskRun) -> _Made | None:
        attempt = task.committed
        if attempt is None or attempt.output is None:
            return None
        of = self.run.id if task.reused is None else task.reused.run
        return _Made(task.spec.name, of, attempt, attempt.output)

    def check_reader(self, made: _Made) -> None:
        """Raise AccessDeniedError if it is the content of a dataset that the requester may not read."""
        reader = self._services.reader
        # A release that reuses an output perhaps does not publish it any more.
        source = self.run if made.run == self.run.id else find_run(self._services, made.run)
        for task in (*self.run.tasks.in_order(), *source.tasks.in_order()):
            for publication in task.spec.publishes:
                grant = None
                if made.task == (publication.of or task.spec.name):
                    grant = read_grant(
                        publication.dataset, reader.dataset(publication.dataset), reader.pipeline
                    )
                if grant is not None:
                    grant.check_principal(principal())

    def place(self, made: _Made) -> OutputFiles:
        """The place of outputs. Raises ObjectNotFoundError if the output was purged."""
        may_be_gone = self.run.state.is_final or made.run != self.run.id
        gone = self._purged(made.run) if may_be_gone else None
        if gone is not None and RunPart.OUTPUTS in gone.parts:
            said = gone.parts[RunPart.OUTPUTS]
            raise ObjectNotFoundError("output_purged", f"outputs of run {made.run} were {said}.")
        if self._services.outputs is None:
            raise OutputsNotHereError("it has no worker.data in its configuration")
        return self._services.outputs

    def elsewhere(self, made: _Made, why: OutputsNotHereError) -> str:
        """Why this scheduler cannot read an output, where it is, and what to do."""
        me, name = self._services.health.info().id, made.attempt.worker
        worker = self._workers.get(name)
        host = "an unknown host, because it is not registered now" if worker is None else worker.hostname
        beside = [
            f"scheduler {scheduler.id} on the same host (`--server {scheduler.address}`)"
            for scheduler in self._services.reader.schedulers()
            if worker is not None and scheduler.host == worker.host and scheduler.id != me
        ]
        ask = " or ".join(beside) or "a scheduler that has that (`--server URL`)"
        return (
            f"scheduler {me} cannot read {made.reference}: {why}. Worker {name} on {host} stored it in its "
            f"worker.data: ask {ask}, or copy it there."
        )

    def model(self, made: _Made, limit: int, after: str) -> OutputModel:
        """An output with its first files after a path, or why they cannot be read."""
        uri, unreadable, listing = None, "", Listing()
        worker = self._workers.get(made.attempt.worker)
        try:
            place = self.place(made)
            listing, uri = place.listed(made.reference, limit, after), place.uri(made.reference)
        except OutputsNotHereError as exc:
            unreadable = self.elsewhere(made, exc)
        except ObjectNotFoundError as exc:
            unreadable = str(exc)
        return OutputModel.from_records(
            made,
            listing,
            attempt=made.attempt.number,
            uri=uri,
            worker=made.attempt.worker,
            host=None if worker is None else worker.hostname,
            unreadable=unreadable,
        )

    @cached_property
    def _workers(self) -> dict[str, WorkerInfo]:
        return {worker.id: worker for worker in self._services.reader.workers()}
