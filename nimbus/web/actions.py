"""Forms of pages: each becomes a request to the API, of the same process and with the same headers.

So who may do what, what is valid, and what is kept of it are decided in one place. No script is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

import httpx
from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from nimbus.web.pages import Pages, segment
from nimbus.web.problems import problem_page

_WAIT_S = 5
"""For the leader's decision; a page shows that a command waits for longer."""
_PASSED_ON = ("host", "cookie", "authorization", "origin", "sec-fetch-site", "x-nimbus-user")

Form = Mapping[str, list[str]]


def router(api: ASGIApp, pages: Pages) -> APIRouter:
    """Build the routes; requests go to `api`."""
    routes = APIRouter()

    async def send(request: Request, path: str, body: Callable[[Form], Any]) -> Response:
        form = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=1000)
        client = request.client
        transport = httpx.ASGITransport(
            api, raise_app_exceptions=False, client=(client.host, client.port) if client else ("", 0)
        )
        headers = [(name, value) for name, value in request.headers.items() if name in _PASSED_ON]
        async with httpx.AsyncClient(
            transport=transport, base_url=str(request.base_url.replace(path="/")), timeout=_WAIT_S + 30
        ) as client_of_api:
            answer = await client_of_api.post(
                f"/api/v1/runs/{path}?wait={_WAIT_S}", json=body(form), headers=headers
            )
        told = answer.json()
        if answer.is_error:
            return await run_in_threadpool(problem_page, request, pages, told, answer.headers)
        run_id = told.get("run_id") or path.partition("/")[0]
        return RedirectResponse(f"/ui/runs/{segment(run_id)}?command={segment(told['command_id'])}", 303)

    @routes.post("/runs/{run_id}/stop")
    async def stop(request: Request, run_id: str) -> Response:
        return await send(request, f"{segment(run_id)}/stop", _reason)

    @routes.post("/runs/{run_id}/pause")
    async def pause(request: Request, run_id: str) -> Response:
        return await send(request, f"{segment(run_id)}/pause", lambda _: None)

    @routes.post("/runs/{run_id}/resume")
    async def resume(request: Request, run_id: str) -> Response:
        return await send(request, f"{segment(run_id)}/resume", lambda _: None)

    @routes.post("/runs/{run_id}/rerun")
    async def rerun(request: Request, run_id: str) -> Response:
        return await send(request, f"{segment(run_id)}/rerun", _rerun)

    @routes.post("/runs/{run_id}/tasks/{task}/approval")
    async def approve(request: Request, run_id: str, task: str) -> Response:
        return await send(request, f"{segment(run_id)}/tasks/{segment(task)}/approval", _approval)

    return routes


def _first(form: Form, name: str) -> str:
    return form.get(name, [""])[0]


def _reason(form: Form) -> dict[str, Any]:
    return {"reason": _first(form, "reason")}


def _rerun(form: Form) -> dict[str, Any]:
    return {
        "scope": _first(form, "scope"),
        "tasks": form.get("task", []),
        "release": _first(form, "release") or "same",
        "reason": _first(form, "reason"),
    }


def _approval(form: Form) -> dict[str, Any]:
    return {"reason": _first(form, "reason"), "approved": _first(form, "approved") == "true"}
