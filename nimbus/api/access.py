"""Authentication and roles of requests. Checked before a body is read, and again by the leader."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType
from urllib.parse import quote

import structlog
from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from nimbus.access import tokens
from nimbus.access.gate import AccessGate, Denial, Presented
from nimbus.access.oidc import is_jwt
from nimbus.access.rules import check_role
from nimbus.api.caller import highest_role, principal, role_of, set_caller
from nimbus.api.problems import problem
from nimbus.domain.cluster.access import AccessDeniedError, AccessRole, Principal, Thing
from nimbus.domain.ids import RUN_ID_PATTERN
from nimbus.ports import IdentityProvider

_NONE, _STATUS, _LOGS, _VIEWER, _OPERATOR, _AUTHOR, _ADMIN = AccessRole
_API: Mapping[str, AccessRole] = {
    "GET /alerts": _NONE,
    "POST /alerts/targets/{name}/test": _OPERATOR,
    "POST /backfill-plan": _VIEWER,
    "GET /backfills": _NONE,
    "POST /backfills": _OPERATOR,
    "GET /backfills/{backfill}": _VIEWER,
    "POST /backfills/{backfill}/{verb}": _OPERATOR,
    "POST /cluster/abdicate": _ADMIN,
    "GET /cluster/history": _NONE,
    "GET /cluster/succession": _NONE,
    "GET /commands": _NONE,
    "GET /commands/{command_id}": _NONE,
    "GET /events": _NONE,
    "GET /holds": _NONE,
    "PUT /holds/{hold}": _OPERATOR,
    "DELETE /holds/{hold}": _OPERATOR,
    "GET /leader": _NONE,
    "GET /participants": _NONE,
    "GET /pipelines": _NONE,
    "GET /pipelines/{name}": _STATUS,
    "DELETE /pipelines/{name}": _AUTHOR,
    "POST /pipelines/{name}/activate": _OPERATOR,
    "GET /pipelines/{name}/explanation": _STATUS,
    "GET /pipelines/{name}/intervals": _STATUS,
    "GET /runs/{run_id}/reads": _VIEWER,
    "GET /datasets": _NONE,
    "GET /datasets/{name}": _VIEWER,
    "GET /datasets/{name}/versions": _VIEWER,
    "POST /datasets/{name}/versions": _OPERATOR,
    "POST /datasets/{name}/remove": _AUTHOR,
    "POST /datasets/{name}/withdraw": _AUTHOR,
    "PUT /pipelines/{name}/owner": _ADMIN,
    "POST /pipelines/{name}/pause": _OPERATOR,
    "POST /pipelines/{name}/rewind": _OPERATOR,
    "GET /pipelines/{name}/releases": _VIEWER,
    "POST /pipelines/{name}/releases": _AUTHOR,
    "GET /pipelines/{name}/releases/{digest}": _VIEWER,
    "GET /pipelines/{name}/releases/{digest}/diff": _VIEWER,
    "GET /pools": _NONE,
    "GET /pools/{name}": _NONE,
    "PUT /pools/{name}": _OPERATOR,
    "DELETE /pools/{name}": _OPERATOR,
    "POST /purge-plan": _VIEWER,
    "POST /purges": _ADMIN,
    "GET /runs": _NONE,
    "POST /runs": _OPERATOR,
    "GET /runs/{run_id}": _STATUS,
    "GET /runs/{run_id}/explanation": _STATUS,
    "GET /runs/{run_id}/outputs": _VIEWER,
    "PUT /runs/{run_id}/note": _OPERATOR,
    "POST /runs/{run_id}/pause": _OPERATOR,
    "GET /runs/{run_id}/replay": _VIEWER,
    "POST /runs/{run_id}/rerun": _OPERATOR,
    "GET /runs/{run_id}/results": _VIEWER,
    "POST /runs/{run_id}/resume": _OPERATOR,
    "POST /runs/{run_id}/stop": _OPERATOR,
    "POST /runs/{run_id}/tasks/{task}/approval": _OPERATOR,
    "GET /runs/{run_id}/tasks/{task}/children": _VIEWER,
    "GET /runs/{run_id}/tasks/{task}/events": _LOGS,
    "GET /runs/{run_id}/tasks/{task}/log": _LOGS,
    "POST /runs/{run_id}/tasks/{task}/mark": _OPERATOR,
    "GET /runs/{run_id}/tasks/{task}/output": _OPERATOR,
    "GET /runs/{run_id}/timeline": _STATUS,
    "POST /selections": _NONE,
    "POST /selections/preview": _NONE,
    "GET /grants": _NONE,
    "GET /grants/may": _NONE,
    "POST /grants": _ADMIN,
    "POST /grants/revoke": _ADMIN,
    "GET /settings": _ADMIN,
    "GET /shares": _VIEWER,
    "PUT /shares/{team}": _ADMIN,
    "GET /calendars": _VIEWER,
    "PUT /calendars/{name}": _ADMIN,
    "DELETE /calendars/{name}": _ADMIN,
    "GET /status": _NONE,
    "GET /tokens": _ADMIN,
    "GET /tokens/{token_id}": _ADMIN,
    "PUT /tokens/{token_id}": _ADMIN,
    "DELETE /tokens/{token_id}": _ADMIN,
    "GET /variables": _NONE,
    "GET /variables/{name}": _VIEWER,
    "PUT /variables/{name}": _OPERATOR,
    "DELETE /variables/{name}": _OPERATOR,
    "GET /workers/wanted": _VIEWER,
    "GET /whoami": _NONE,
    "GET /workers": _NONE,
    "POST /workers/{worker}/cordon": _OPERATOR,
    "POST /workers/{worker}/uncordon": _OPERATOR,
}
"""Below `/api/v1`. Lists need no role: they leave out what their caller may not see."""
_OTHERS: Mapping[str, AccessRole] = {
    "GET /metrics": _VIEWER,
    "GET /openapi.json": _NONE,
}


def _below_prefix(route: str) -> str:
    method, _, path = route.partition(" ")
    return f"{method} /api/v1{path}"


NEEDS: Mapping[str, AccessRole] = MappingProxyType(
    {_below_prefix(route): role for route, role in _API.items()} | dict(_OTHERS)
)
"""By method and path, such as `GET /api/v1/runs/{run_id}`."""

CLUSTER_WIDE = frozenset(
    {
        "GET /metrics",
        "POST /api/v1/alerts/targets/{name}/test",
        "POST /api/v1/purge-plan",
        "GET /api/v1/shares",
    }
)
"""Routes for which no grant counts: they are about more than one pipeline."""
_PAGES: Mapping[str, AccessRole] = {
    "GET /runs/{run_id}/tasks/{task}": _VIEWER,
    "GET /pipelines/{name}/backfill": _VIEWER,
}


def page_need(route: str) -> AccessRole:
    """The role that a page below `/ui` needs: that of the API's route of the same path, if there is one."""
    return _PAGES.get(route, NEEDS.get(_below_prefix(route), _NONE) if route.startswith("GET") else _NONE)


OPEN = frozenset(
    {"/", "/healthz", "/readyz", "/ui/login", "/ui/login/provider", "/ui/login/callback", "/ui/logout"}
)
"""Open paths: `/`, which only leads to the pages; those of supervisors and load balancers; login and logout.
These senders have no token."""
OPEN_BELOW = ("/hooks/", "/attempt/v1/", "/ui/static/")
"""Open prefixes: they have their own credentials (a signature, an attempt's token), or are public."""


def is_open(path: str) -> bool:
    """True when a path needs no authentication."""
    return path in OPEN or path.startswith(OPEN_BELOW)


_log = structlog.stdlib.get_logger(__name__)

COOKIE, PLAIN_COOKIE = "__Host-nimbus", "nimbus"
"""Browsers accept the first only over TLS. The second is for loopback without TLS."""
REASON = "X-Nimbus-Reason"
LOGIN = "/ui/login"
_LONGEST_LOGGED_PATH = 200


class Authenticate:
    """Answers 401 to unauthenticated requests and 429 to too many requests. Plain ASGI."""

    def __init__(self, app: ASGIApp, gate: AccessGate, provider: IdentityProvider | None = None) -> None:
        self._app, self._gate, self._provider = app, gate, provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "http" and not is_open(scope["path"]):
            await prepare(self._provider, Headers(scope=scope).get("authorization", ""))
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        if tokens.is_in_url(scope["path"], scope["query_string"].decode("latin-1")):
            _log.warning("token_in_url", address=_address(scope))
            return problem(
                400,
                "token_in_url",
                "Addresses are kept in histories and logs, so a token must not be in one: send it as "
                "`Authorization: Bearer`, and revoke this one.",
            )
        if is_open(scope["path"]):
            return None
        headers = Headers(scope=scope)
        session = cookie(headers, COOKIE if self._gate.secure else PLAIN_COOKIE)
        caller = who_sends(self._gate, scope, headers.get("authorization", ""), session)
        if isinstance(caller, Denial):
            return _login_page(scope) if _shows_pages(scope, headers, caller) else answer_to(caller)
        set_caller(replace(caller, reason=headers.get(REASON, "")[:500]), self._gate.grants)
        return None


async def prepare(provider: IdentityProvider | None, authorization: str) -> None:
    """Fetch the identity provider's keys that these credentials need."""
    text = authorization.partition(" ")[2].strip()
    if provider is not None and is_jwt(text):
        await provider.prepare(text)


def who_sends(gate: AccessGate, scope: Scope, authorization: str, session: str = "") -> Principal | Denial:
    """The principal of a request with these credentials, or the refusal."""
    sent = Presented(authorization=authorization, session=session, address=_address(scope))
    admitted = gate.admit(sent, datetime.now(UTC), time.monotonic())
    if isinstance(admitted, Denial) and admitted.status in (
        401,
        403,
    ):  # 429 is not logged: it could fill the disk
        path = scope["path"][:_LONGEST_LOGGED_PATH]
        _log.info("request_denied", code=admitted.code, address=sent.address, path=path)
    return admitted


async def authorize(request: Request) -> None:
    """Raise AccessDeniedError if the principal may not use the route; a dependency of all routes."""
    await _check_route(request, NEEDS.get(_route(request), AccessRole.ADMIN))


async def authorize_page(request: Request) -> None:
    """The same for pages: each needs what the API's route of its path needs. Their forms ask the API."""
    await _check_route(request, page_need(_route(request)))


def _route(request: Request) -> str:
    return f"{request.method} {getattr(request.scope.get('route'), 'path', '')}"


async def _check_route(request: Request, needed: AccessRole) -> None:
    """Check the role on what the path names, or the highest role on anything if it names nothing.

    What may not even be seen is left to the route, for which it does not exist. Lists leave out what may not
    be seen, and commands are checked with their bodies.
    """
    if is_open(request.url.path) or principal().role.includes(needed):
        return
    route, highest = _route(request), highest_role()
    if route in CLUSTER_WIDE or not highest.includes(needed):
        check_role(principal(), needed, route)
    role = await run_in_threadpool(role_on_path, request)
    if role.includes(AccessRole.STATUS) and not role.includes(needed):
        raise AccessDeniedError(
            "role_too_low", f"{route} needs the role {needed} on that, and {principal().name} has {role}."
        )


def role_on_path(request: Request) -> AccessRole:
    """The role on what a path names; NONE: it names nothing, or nothing that can exist."""
    before, _, rest = request.scope["route"].path.partition("/{")
    name = str(request.path_params.get(rest.partition("}")[0], ""))
    kind, find = before.rpartition("/")[2], request.app.state.reader.lookups()
    finds = {"pipelines": find.of_pipeline, "runs": find.of_run, "datasets": find.of_dataset}
    finds |= {"backfills": find.of_backfill, "variables": lambda named: Thing("variable", named)}
    if kind not in finds or (kind != "variables" and not RUN_ID_PATTERN.fullmatch(name)):
        return AccessRole.NONE
    thing = finds[kind](name)
    return AccessRole.NONE if thing is None else role_of(thing)


def answer_to(refusal: Denial) -> Response:
    """The problem document for a refusal."""
    headers = {}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="nimbus"'
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    return problem(refusal.status, refusal.code, refusal.message, headers=headers)


def _shows_pages(scope: Scope, headers: Headers, refusal: Denial) -> bool:
    """True when a person requests a page, so that the login page is the better answer."""
    is_page = scope["path"].partition("/ui")[0] == "" and "text/html" in headers.get("accept", "")
    return is_page and refusal.status == 401 and scope["method"] in ("GET", "HEAD")


def _login_page(scope: Scope) -> Response:
    query = scope["query_string"].decode("latin-1")
    after = quote(f"{scope['path']}?{query}" if query else scope["path"], safe="")
    return RedirectResponse(f"{LOGIN}?next={after}", 303, headers={"Cache-Control": "no-store"})


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def cookie(headers: Headers, name: str) -> str:
    """The cookie with this name; empty: there is none.

    Browsers send the cookies of every port of a host. `http.cookies` stops at the first cookie that it cannot
    parse, for example one of another program, and a logged-in user would have to log in again and again.
    """
    return cookie_parser(headers.get("cookie", "")).get(name, "")
