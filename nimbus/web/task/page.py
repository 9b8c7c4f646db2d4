"""Pages about one task of a run, with the line of code that failed, and its log."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import RunIdText, TaskNameText
from nimbus.api.routes.releases import MAX_TEXT_BYTES
from nimbus.api.runs.logs import known_attempt, unstored_log
from nimbus.api.runs.lookup import FoundRun, find_run, found_run, unknown_task
from nimbus.api.runs.models import TaskModel
from nimbus.api.runs.outputs import OutputModel
from nimbus.api.runs.replay import child_models
from nimbus.api.runs.routes import list_results, purged_parts, shown_run
from nimbus.api.services import ApiServices, Releases
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import AttemptId, TaskName
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import TaskKind
from nimbus.domain.runs.lifecycle import is_ready
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.run import RunPart as Purged
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.wording import escape_controls
from nimbus.task import fence_token
from nimbus.web.pages import Pages, segment
from nimbus.web.pipeline.strip import strip
from nimbus.web.task.log import PAGE, PART, LineNumbers, Window, last_lines, line_start, pieces, search
from nimbus.web.task.output import listed
from nimbus.worker.attempt.verdict import TAIL_BYTES, last_error

_TAIL_BYTES = 32 * 1024
"""How much of a log's end a task's page shows without scripts."""
_CHILDREN, _NAMED = 200, 100
_FILES = 20

_LEVELS = {"error": ("error",), "warning": ("error", "warning")}

Offset = Annotated[int | None, Query(ge=0, le=1 << 53)]
AttemptNumber = Annotated[int | None, Query(ge=1, le=1 << 31)]


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes, numbers = APIRouter(), LineNumbers()

    @routes.get("/runs/{run_id}/tasks/{task}")
    async def task(
        request: Request, run_id: RunIdText, task: TaskNameText, attempt: AttemptNumber = None
    ) -> Response:
        found = await run_sync(found_run, services, run_id)
        output = await listed(services, found.run, task, _FILES)
        return await run_sync(page, request, found, task, attempt, output)

    def page(
        request: Request,
        found: FoundRun,
        task: TaskName,
        attempt: int | None,
        output: OutputModel | str | None,
    ) -> Response:
        run = found.run
        if task not in run.tasks:
            raise unknown_task(run, task)
        task_run = run.tasks[task]
        model = shown_run(services, FoundRun(run, archived=False), [task_run])
        shown = model.tasks[0]
        log = _log(services, numbers, run, task, attempt) if shown.attempts else None
        has_result = any(tried.has_result for tried in shown.attempts)
        children = child_models(run, task_run) if shown.children is not None else []
        about = {
            "past": strip(services, pages, request, run, task),
            "run": model,
            "task": shown,
            "spec": task_run.spec,
            "can_be_decided": task_run.spec.kind is TaskKind.APPROVAL and is_ready(run, task_run),
            "log": log,
            "base": f"/ui/runs/{segment(run.id)}",
            "children": children[:_CHILDREN],
            "more_children": len(children[_CHILDREN:]),
            "why_attempt": _reasons(task_run),
            **_attempt(services, run, shown, log),
            "most_named": _NAMED,
            "needed_by": sorted(run.tasks.dependents(task)),
            "output": output,
            "result": list_results(services, found, task).results.get(task) if has_result else None,
            "following": sum(1 for _ in run.tasks.downstream(task)),
        }
        return pages.answer(request, "task.html", about, about=run.pipeline)

    @routes.get("/runs/{run_id}/tasks/{task}/log")
    def log(
        request: Request,
        run_id: RunIdText,
        task: TaskNameText,
        attempt: AttemptNumber = None,
        offset: Offset = None,
        until: Offset = None,
        line: Annotated[int | None, Query(ge=1, le=1 << 53)] = None,
        q: Annotated[str, Query(max_length=200)] = "",
        level: Literal["", "warning", "error"] = "",
        start: Annotated[int, Query(ge=0, le=1 << 53)] = 0,
        more: Annotated[bool, Query(description="Only lines, which a script adds to its page.")] = False,
    ) -> Response:
        run = find_run(services, run_id)
        base = f"/ui/runs/{segment(run_id)}"
        page = _log(
            services, numbers, run, task, attempt, LogPart(offset, until, line, PART if more else PAGE)
        )
        if more:
            return pages.answer(request, "log_pieces.html", {"log": page, "base": base, "name": task})
        if (q or level) and page["number"]:
            read, levels = page["read"], _LEVELS.get(level, ())
            first = numbers.at(page["id"], read, start)
            page["search"] = search(read, q, start, page["size"], levels=levels, line=first)
        about = {
            "run": run,
            "past": strip(services, pages, request, run, task),
            "log": page,
            "q": q,
            "level": level,
            "base": base,
            "name": task,
            "attempts": run.tasks[task].attempts,
        }
        return pages.answer(request, "log.html", about, about=run.pipeline)

    return routes


def _attempt(services: ApiServices, run: Run, task: TaskModel, log: dict[str, Any] | None) -> dict[str, Any]:
    """The attempt of a page, from the run and from ZooKeeper."""
    number = None if log is None else log["number"]
    shown = next((attempt for attempt in task.attempts if attempt.number == number), None)
    if shown is None:
        return {"attempt": None}
    place = AttemptId(run.id, TaskName(task.name), shown.number)
    code = None
    if log is not None and shown.outcome is not None and shown.reason:
        tail = log["read"](max(0, log["size"] - TAIL_BYTES), TAIL_BYTES).decode("utf-8", "replace")
        code = failed_code(services.releases, ReleaseOf(run.pipeline, run.release), tail)
    return {
        "attempt": shown,
        "code": code,
        "slots": services.reader.slots([place]).get(place),
        "fence_token": fence_token(shown.number),
    }


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of a log. Without an offset and a line, its end, or what is before `until`."""

    start: int | None = None
    until: int | None = None
    line: int | None = None
    """Number of the first line."""
    window: Window = Window(_TAIL_BYTES, PAGE.lines)  # noqa: RUF009 - immutable


def _log(
    services: ApiServices,
    numbers: LineNumbers,
    run: Run,
    task: str,
    attempt: int | None,
    part: LogPart = LogPart(),
) -> dict[str, Any]:
    """The content of a page about a log."""
    try:
        number, state = known_attempt(run, task, attempt)
    except ObjectNotFoundError as exc:
        if exc.code != "no_attempt":
            raise
        return {"number": None, "why_none": str(exc)}
    if (gone := purged_parts(services, run).get(Purged.LOGS)) is not None:
        return {"number": None, "why_none": f"The logs of this run were {gone}."}
    # The state is read before the size: the log of an ended attempt soon stops growing.
    place = AttemptId(run.id, TaskName(task), number)
    size, read = services.logs.size(place), partial(services.logs.read, place)
    end = size if part.until is None else min(part.until, size)
    start, is_tail = part.start, part.start is None and part.line is None
    if start is None:
        begins = None if part.line is None else numbers.find(place, read, part.line, size)
        start = line_start(read, max(0, end - part.window.size_bytes)) if begins is None else begins
    start = min(start, end)
    before = min(start, 1)  # the byte before says whether a line begins here
    size_bytes = min(end - start, part.window.size_bytes) + before
    data = read(start - before, size_bytes) if start < end else b""
    whole = (state != "open" or end < size) and start - before + len(data) >= end
    mid_line, data = before == 1 and data[:1] != b"\n", data[before:]
    if is_tail and (last := last_lines(data, part.window.lines)) != data:
        start, data, mid_line = start + len(data) - len(last), last, False
    line = numbers.at(place, read, start) if data else None
    shown = pieces(data, start, whole=whole, lines=part.window.lines, line=line, mid_line=mid_line)
    return {
        "id": place,
        "number": number,
        "state": state,
        "unstored": "" if state == "open" else unstored_log(services, run, task, number),
        "size": size,
        "pieces": shown,
        "start": start,
        "end": shown[-1].end if shown else start,
        "read": read,
    }


def _reasons(task: TaskRun) -> dict[int, str]:
    """Why each attempt was opened, by its number, derived from the attempts before it."""
    reasons: dict[int, str] = {}
    used = 0
    for before, attempt in zip((None, *task.attempts), task.attempts, strict=False):
        if before is None:
            reasons[attempt.number] = "the first" if attempt.number == 1 else ""
            continue
        ended = f"attempt {before.number} ended as {before.ending.replace('_', ' ')}"
        if task.spec.keeps_running:
            reasons[attempt.number] = f"{ended}: it is kept running"
        elif before.outcome is not None and before.outcome.is_infrastructure:
            reasons[attempt.number] = f"{ended}: uses up no retry"
        else:
            used += 1
            reasons[attempt.number] = f"{ended}: retry {used} of {task.spec.retries.limit}"
    return reasons


_FRAME = re.compile(r'^[ |+]*File "([^"\n]{1,4096})", line (\d{1,7})(?:, in ([^\n]{1,200}))?$', re.M)
"""A frame of a traceback, of an exception group too; a syntax error has no function."""
_MAX_FRAMES = 100
_AROUND = 4
_LONGEST_LINE = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Lines of a file of a release."""

    path: str
    line: int
    """The line that failed."""
    function: str
    """Empty: it is not known."""
    lines: tuple[tuple[int, str], ...]
    """Numbers and texts of the lines around it."""


def failed_code(releases: Releases, release: ReleaseOf, log_tail: str) -> Code | None:
    """The innermost line of the release's code in the last error of a log.

    Names and numbers in a log are those of a task: they are looked up among the files of the release, not
    opened. None: there is none, it is no text in UTF-8 of 256 KiB at most, or the release is not here.
    """
    frames = list(_FRAME.finditer(last_error(log_tail)))[-_MAX_FRAMES:]
    try:
        if not frames or not releases.is_here(release):
            return None
        files = {file.path: file.size_bytes for file in releases.files(release) or ()}
        for frame in reversed(frames):
            # Errors of Spark's Python workers name files by their place on the worker's disk.
            path = frame[1].rpartition(f"/{release.digest}/")[2]
            if files.get(path, MAX_TEXT_BYTES + 1) <= MAX_TEXT_BYTES:
                data = releases.content(release, path)
                return None if data is None else _around(path, frame, data)
    except (NimbusError, UnicodeDecodeError):
        pass  # the page is about more than this
    return None


def _around(path: str, frame: re.Match[str], data: bytes) -> Code | None:
    line = int(frame[2])
    lines = re.split(r"\r\n|\r|\n", data.decode())  # as Python counts them
    if not 1 <= line <= len(lines):
        return None
    first = max(1, line - _AROUND)
    shown = (
        escape_controls(text[:_LONGEST_LINE].expandtabs(4)) for text in lines[first - 1 : line + _AROUND]
    )
    return Code(path=path, line=line, function=frame[3] or "", lines=tuple(enumerate(shown, first)))
