"""Login and logout of browsers: a token in a form becomes a cookie that any scheduler accepts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from html import escape
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from nimbus.access.gate import Gate, Refusal
from nimbus.access.session import LIFETIME
from nimbus.api.access import COOKIE, LOGIN, PLAIN_COOKIE, answer_to, who_sends
from nimbus.api.services import ApiServices

HOME = "/ui"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Log in - Nimbus</title>
</head>
<body>
<main>
<h1>Log in</h1>
<p role="alert">{said}</p>
<form method="post" action="{action}">
<p>
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
</p>
<input type="hidden" name="next" value="{after}">
<p><button>Log in</button></p>
</form>
<p>An admin makes one: <code>nimbus token create NAME --role ROLE</code></p>
</main>
</body>
</html>
"""


def router(services: ApiServices) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter(include_in_schema=False)
    gate = services.gate

    @routes.get(LOGIN)
    async def login_page(request: Request) -> Response:
        """A form that asks for a token; works without JavaScript."""
        return _page("", request.query_params.get("next", HOME))

    @routes.post(LOGIN)
    async def login(request: Request) -> Response:
        """Begin a session: of a form, `token` and `next`; or of a JSON object, `token`."""
        body = await request.body()
        is_form = "json" not in request.headers.get("content-type", "")
        sent = _form(body) if is_form else _json(body)
        found = who_sends(gate, request.scope, f"Bearer {sent.get('token', '').strip()}")
        if isinstance(found, Refusal):
            return _page(found.message, sent.get("next", HOME), found) if is_form else answer_to(found)
        begun = gate.begin_session(found, datetime.now(UTC))
        if begun is None:
            return answer_to(NOT_YET)
        done = RedirectResponse(_local(sent.get("next", HOME)), 303) if is_form else Response(status_code=204)
        _set_cookie(done, gate, begun, int(LIFETIME.total_seconds()))
        return done

    @routes.post("/ui/logout")
    async def logout() -> Response:
        """End the session of this browser. The token stays: revoke it if it was seen by others."""
        done = RedirectResponse(LOGIN, 303)
        _set_cookie(done, gate, "", 0)
        return done

    return routes


NOT_YET = Refusal(
    status=503,
    code="access_unknown",
    message="This scheduler has not read the key of sessions yet; ask again.",
    retry_after_s=2,
)


def _page(said: str, after: str, refusal: Refusal | None = None) -> HTMLResponse:
    text = _PAGE.format(said=escape(said), action=LOGIN, after=escape(_local(after)))
    headers = dict(_HEADERS)
    if refusal is not None and refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    return HTMLResponse(text, status_code=200 if refusal is None else refusal.status, headers=headers)


def _local(path: str) -> str:
    """A path of this server, or the first page: never another server, however it is spelled."""
    plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if plain and path.startswith("/ui") else HOME


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


def _set_cookie(response: Response, gate: Gate, value: str, max_age_s: int) -> None:
    response.set_cookie(
        COOKIE if gate.secure else PLAIN_COOKIE,
        value,
        max_age=max_age_s,
        path="/",
        secure=gate.secure,
        httponly=True,
        samesite="lax",
    )
