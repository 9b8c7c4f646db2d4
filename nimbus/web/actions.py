"""Forms of pages: each becomes a request to the API of the same process, with the same headers.

So permissions, validation and records are in one place. No script is needed.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from nimbus.domain.pipelines.parameters import parsed_json
from nimbus.domain.pipelines.pipeline import ParameterSpec
from nimbus.web.pages import Pages, segment
from nimbus.web.problems import problem_page

_WAIT_S = 5
"""Wait for the leader's decision. After that, the page shows the command as waiting."""
_MAX_FIELDS = 1000
_PASSED_ON = ("host", "cookie", "authorization", "origin", "sec-fetch-site", "x-nimbus-user")

_APPROVAL = "runs/{run_id}/tasks/{task}/approval"

Form = Mapping[str, list[str]]
Body = Callable[[Form], Any]
Send = Callable[..., Awaitable[Response]]
"""The type of `send` in `router`."""


def router(pages: Pages) -> APIRouter:
    """Build the routes. Requests go to `state.api` of their application.

    They have no reference to the API: FastAPI keeps the functions of thousands of routes for the life of the
    process, and with them it would keep the API of each test.
    """

    async def send(request: Request, path: str, body: Body, place: str | None = None) -> Response:
        """Send a form to `path` of the API, then show `place` below `/ui`, or the run of the command."""
        import httpx  # late: a scheduler starts without it

        text = (await request.body()).decode("utf-8", "replace")
        try:
            form = parse_qs(text, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError as exc:
            raise HTTPException(422, f"the form has more than {_MAX_FIELDS} fields") from exc
        client = request.client
        api: ASGIApp = request.app.state.api
        transport = httpx.ASGITransport(
            api, raise_app_exceptions=False, client=(client.host, client.port) if client else ("", 0)
        )
        headers = [(name, value) for name, value in request.headers.items() if name in _PASSED_ON]
        if revision := _first(form, "revision"):
            headers.append(("if-match", f'"{segment(revision)}"'))
        async with httpx.AsyncClient(
            transport=transport, base_url=str(request.base_url.replace(path="/")), timeout=_WAIT_S + 30
        ) as client_of_api:
            answer = await client_of_api.post(
                f"/api/v1/{path}?wait={_WAIT_S}", json=body(form), headers=headers
            )
        told = answer.json()
        if answer.is_error:
            return await run_in_threadpool(problem_page, request, pages, told, answer.headers)
        shown = place or f"runs/{segment(told['run_id'])}"
        return RedirectResponse(f"/ui/{shown}?command={segment(told['command_id'])}", 303)

    routes = APIRouter()
    for path, target, body, place in _FORMS:
        _add(routes, send, path, target, body, place)

    @routes.post("/pipelines/{name}/start")
    async def start(request: Request, name: str) -> Response:
        return await send(request, "runs", partial(_start, name))

    @routes.post("/pipelines/{name}/backfill/{backfill}")
    async def create(request: Request, name: str, backfill: str) -> Response:
        place = f"backfills/{segment(backfill)}"
        return await send(request, "backfills", partial(_backfill, name, backfill), place)

    return routes


def _add(routes: APIRouter, send: Send, path: str, target: str, body: Body, place: str | None) -> None:
    @routes.post(f"/{path}")
    async def form(request: Request) -> Response:
        names = {name: segment(value) for name, value in request.path_params.items()}
        shown = None if place is None else place.format(**names)
        return await send(request, target.format(**names), body, shown)


def _first(form: Form, name: str) -> str:
    return form.get(name, [""])[0]


def _nothing(_form: Form) -> None:
    return None


def _texts(*names: str) -> Body:
    return lambda form: {name: _first(form, name) for name in names}


_reason = _texts("reason")


def _reason_if_any(form: Form) -> Any:
    return _reason(form) if _first(form, "reason").strip() else None


def _rerun(form: Form) -> dict[str, Any]:
    return {
        "scope": _first(form, "scope"),
        "tasks": form.get("task", []),
        "release": _first(form, "release") or "same",
        "reason": _first(form, "reason"),
    }


def _selection(form: Form) -> dict[str, Any]:
    return {"action": _first(form, "action"), "names": form.get("name", []), "reason": _first(form, "reason")}


def _approval(form: Form) -> dict[str, Any]:
    return {"reason": _first(form, "reason"), "approved": _first(form, "approved") == "true"}


def _release(form: Form) -> dict[str, Any]:
    digest, reason = _first(form, "digest"), _first(form, "reason")
    return {"digest": digest or None, "reason": reason}


def _start(pipeline: str, form: Form) -> dict[str, Any]:
    """Fields of parameters are named `<kind>.<parameter>`; see `fields`."""
    parameters = {}
    for field, (value, *_) in form.items():
        kind, _, name = field.partition(".")
        if kind == "text" or (kind == "some" and value):
            parameters[name] = value
        elif kind == "json" and value:
            parameters[name] = _json(value)
    return {"pipeline": pipeline, "parameters": parameters}


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of the form that starts a run."""

    parameter: str
    name: str
    value: str
    options: Sequence[tuple[str, str]]
    """Values of a choice, each with its label; empty: any text."""
    required: bool
    hint: str
    number: bool
    minimum: float | None
    maximum: float | None


def fields(parameters: Mapping[str, ParameterSpec], given: Mapping[str, Any]) -> list[Field]:
    """The fields of the form that starts a run, in the order of the definition; `given`: instead of defaults.

    The prefix of a field's name decides how its text becomes a value: `json.x` is parsed as JSON, `text.x` is
    used unchanged, `some.x` is used unchanged unless it is empty. A missing value gets the default.
    """
    return [
        _field(name, parameter, given.get(name, parameter.default)) for name, parameter in parameters.items()
    ]


def _field(name: str, parameter: ParameterSpec, value: Any) -> Field:
    is_list = parameter.type == "list"  # its choices are those of its values
    choices = [] if is_list else parameter.choices or ([True, False] if parameter.type == "boolean" else [])
    is_text = parameter.type == "string" and not choices
    kind = "json" if not is_text else "some" if parameter.default is None else "text"
    shown = "" if value is None else str(value) if is_text else _text(value)
    return Field(
        parameter=name,
        name=f"{kind}.{name}",
        value=shown,
        options=[(_text(choice), choice if isinstance(choice, str) else _text(choice)) for choice in choices],
        required=parameter.required,
        hint=" ".join(filter(None, (parameter.description, 'a JSON list, such as ["a", "b"]' * is_list))),
        number=parameter.type in ("integer", "number"),
        minimum=parameter.minimum,
        maximum=parameter.maximum,
    )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _backfill(pipeline: str, backfill: str, form: Form) -> dict[str, Any]:
    given = {name: value for name, (value, *_) in form.items() if value and name != "max_parallel"}
    return {
        **given,
        "pipeline": pipeline,
        "id": backfill,
        "max_parallel": _json(_first(form, "max_parallel")),
    }


def _json(text: str) -> Any:
    """The value of a field. Text that is no JSON is unchanged, so that the leader's refusal explains it."""
    try:
        return parsed_json(text)
    except ValueError:
        return text


_FORMS: Sequence[tuple[str, str, Body, str | None]] = (
    ("runs/{run_id}/stop", "runs/{run_id}/stop", _reason, None),
    ("runs/{run_id}/pause", "runs/{run_id}/pause", _nothing, None),
    ("runs/{run_id}/resume", "runs/{run_id}/resume", _nothing, None),
    ("runs/{run_id}/rerun", "runs/{run_id}/rerun", _rerun, None),
    (_APPROVAL, _APPROVAL, _approval, "runs/{run_id}"),
    ("selection", "selections", _selection, "commands"),
    ("pipelines/{name}/pause", "pipelines/{name}/pause", _nothing, "pipelines/{name}"),
    ("pipelines/{name}/activate", "pipelines/{name}/activate", _release, "pipelines/{name}"),
    ("backfills/{backfill}/{verb}", "backfills/{backfill}/{verb}", _reason_if_any, "backfills/{backfill}"),
    ("election/abdicate", "cluster/abdicate", _texts("reason", "to"), "election"),
)
"""Paths below `/ui`, paths of the API, what is sent, and the page that is shown then: none, the run's."""
