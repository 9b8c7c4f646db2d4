"""Login and logout of browsers: a form exchanges a token for a cookie that any scheduler accepts."""

from __future__ import annotations

import json
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from nimbus.access.gate import Refusal
from nimbus.api.access import LOGIN, answer_to, prepare, who_sends
from nimbus.api.login_page import HOME, begin_session, login_page, set_session, show_next
from nimbus.api.services import ApiServices


def router(services: ApiServices) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter(include_in_schema=False)
    gate, provider = services.gate, services.browser_login

    @routes.get(LOGIN)
    async def ask(request: Request) -> Response:
        """The login form for a token, with a link to the identity provider, if there is one."""
        return login_page(request.query_params.get("next", HOME), provider=provider)

    @routes.post(LOGIN)
    async def login(request: Request) -> Response:
        """Begin a session from a form with `token` and `next`, or from a JSON object with `token`."""
        body = await request.body()
        is_form = "json" not in request.headers.get("content-type", "")
        sent = _form(body) if is_form else _json(body)
        after, credentials = sent.get("next", HOME), f"Bearer {sent.get('token', '').strip()}"
        await prepare(services.provider, credentials)
        found = who_sends(gate, request.scope, credentials)
        if isinstance(found, Refusal):
            return login_page(after, found, provider=provider) if is_form else answer_to(found)
        done = show_next(after) if is_form else Response(status_code=204)
        refusal = begin_session(done, gate, found)
        return done if refusal is None else answer_to(refusal)

    @routes.post("/ui/logout")
    async def logout() -> Response:
        """End the session of this browser. The token stays valid: revoke it if others have seen it."""
        done = RedirectResponse(LOGIN, 303)
        set_session(done, gate, "", 0)
        return done

    return routes


def _form(body: bytes) -> dict[str, str]:
    try:
        found = parse_qs(body.decode(), max_num_fields=10)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in found.items()}


def _json(body: bytes) -> dict[str, str]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return (
        {key: value for key, value in found.items() if isinstance(value, str)}
        if isinstance(found, dict)
        else {}
    )
