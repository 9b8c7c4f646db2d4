"""The page of a task's output: its files, and the first rows of one of them.

Who may download a file may see its rows: the page has the path of the API's route of files, and its role.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, TypeVar

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import FilePathText, RunIdText, TaskNameText
from nimbus.api.runs.lookup import find_run
from nimbus.api.runs.outputs import OutputModel, list_outputs, open_output
from nimbus.api.services import ApiServices
from nimbus.definition.apart import run_apart
from nimbus.domain.cluster.access import AccessDeniedError
from nimbus.domain.errors import NimbusError
from nimbus.domain.runs.run import Run
from nimbus.web.pages import Pages, segment
from nimbus.web.task.first_rows import CPU_S

_T = TypeVar("_T")
_FILES = 50
_LIST_WITHIN_S, _READ_WITHIN_S, _PARSE_WITHIN_S = 2, 30, 20
_TEXT_BYTES, _PARQUET_BYTES = 256 << 10, 32 << 20
"""How much is read of a text, and the largest Parquet file that is read: its schema is at its end."""
_KINDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".parquet": "parquet",
    ".txt": "text",
    ".md": "text",
    ".log": "text",
    ".sql": "text",
    ".xml": "text",
    ".yaml": "text",
    ".html": "text",
}


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the route over `services`."""
    routes = APIRouter()

    @routes.get("/runs/{run_id}/tasks/{task}/output")
    async def output(
        request: Request,
        run_id: RunIdText,
        task: TaskNameText,
        path: Annotated[FilePathText | None, Query()] = None,
        after: Annotated[str, Query(max_length=1024)] = "",
    ) -> Response:
        run = await run_sync(find_run, services, run_id)
        listing = await listed(services, run, task, _FILES, after)
        if listing is None:
            raise ObjectNotFoundError("no_output", f"task {task} of run {run_id} has no committed output.")
        files: list[Any] = [] if isinstance(listing, str) else listing.files
        names = (file.path for file in files if _kind(file.path) and file.size_bytes)
        path = path or next((name for name in names if name.rpartition("/")[2][0] not in "._"), None)
        call = partial(first_rows, services, run, task, path or "")
        about = {
            "run_id": run_id,
            "task": task,
            "output": listing,
            "shown": path,
            "rows": await _within(services, call, _READ_WITHIN_S) if path else None,
            "base": f"/ui/runs/{segment(run_id)}",
            "pipeline": run.pipeline,
        }
        answer = partial(pages.answer, request, "output.html", about, about=run.pipeline)
        return await run_sync(answer)

    return routes


async def listed(
    services: ApiServices, run: Run, task: str, limit: int, after: str = ""
) -> OutputModel | str | None:
    """A task's output with its first files, or why it is not shown; None: there is none."""
    call = partial(list_outputs, services, run, task, limit=limit, after=after)
    try:
        listing = await _within(services, call, _LIST_WITHIN_S)
    except ObjectNotFoundError:
        return None
    return listing if isinstance(listing, str) else listing.outputs[0]


async def _within(services: ApiServices, call: Callable[[], _T], within_s: float) -> _T | str:
    """What the call returns, or why it failed.

    A folder that hangs keeps its thread, of which `services.reading` allows few, but not the page.
    """
    reading = asyncio.create_task(run_sync(call, limiter=services.reading))
    done, _ = await asyncio.wait({reading}, timeout=within_s)
    if not done:
        reading.cancel()
        return f"The storage of outputs did not answer within {within_s} s."
    try:
        return reading.result()
    except (ObjectNotFoundError, AccessDeniedError):
        raise
    except NimbusError as exc:
        return str(exc)


def first_rows(services: ApiServices, run: Run, task: str, path: str) -> dict[str, Any]:
    """The first rows of a file, or its first lines, as `nimbus.web.task.first_rows` prints them.

    Raises ObjectNotFoundError, AccessDeniedError, RefusedError: as of `open_output`.
    """
    opened = open_output(services, run, task, path)
    kind, size = _kind(path) or "text", opened.file.size_bytes
    if kind == "parquet" and size > _PARQUET_BYTES:
        return {"why": f"Parquet above {_PARQUET_BYTES >> 20} MiB is not shown: download it."}
    limit = _PARQUET_BYTES if kind == "parquet" else _TEXT_BYTES
    data = bytearray()
    for piece in opened.pieces:
        data += piece
        if len(data) > limit:  # the last line is perhaps not whole
            del data[limit:]
            del data[data.rfind(b"\n") + 1 or limit :]
            break
    try:
        done = run_apart("nimbus.web.task.first_rows", kind, given=bytes(data), within_s=_PARSE_WITHIN_S)
    except (OSError, subprocess.TimeoutExpired):
        return {"why": "It cannot be read now: the process that reads it did not answer."}
    if done.returncode:
        is_slow = done.returncode == -signal.SIGPROF
        return {
            "why": f"To read it takes more than {CPU_S:.0f} s."
            if is_slow
            else "It ended the process that reads it."
        }
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown | {"cut": len(data) < size}


def _kind(path: str) -> str:
    name = path.rpartition("/")[2]
    return _KINDS.get(name[name.rfind(".") :].lower(), "")
