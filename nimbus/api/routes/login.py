"""Login and logout of browsers: a token, or a login at an identity provider, becomes a session.

The session is a cookie that any scheduler accepts. The pages work without JavaScript.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from html import escape
from urllib.parse import parse_qs, quote

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from nimbus.access import login_state
from nimbus.access.gate import AccessGate, Denial
from nimbus.access.login_state import LoginState
from nimbus.access.oidc import JwtRefusedError
from nimbus.access.session import MAX_BYTES, end_of
from nimbus.api.access import COOKIE, LOGIN, PLAIN_COOKIE, answer_to, cookie, prepare, who_sends
from nimbus.api.services import ApiServices
from nimbus.domain.cluster.access import AccessDeniedError, Principal
from nimbus.ports import IdentityProvider, IdentityProviderError

HOME = "/ui"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
# The pages' package is above this one, and only it knows the version of its files. A URL with another version
# gets the same file, which the browser does not cache.
_STYLE = "/ui/static/login/style.css"
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in · Nimbus</title>
<link rel="stylesheet" href="{style}">
</head>
<body>
<header><span class="brand" translate="no">Nimbus</span></header>
<main>
<h1>Log in</h1>
{said}{provider}<form class="filters" method="post" action="{action}">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>
<input type="hidden" name="next" value="{after}">
<button>Log in</button>
</form>
<p class="hint">An admin makes one: <code>nimbus token create NAME --role ROLE</code></p>
</main>
</body>
</html>
"""
_PROVIDER = """\
<p><a href="{place}?next={after}">Log in with your organisation</a></p>
<p>Or with a token:</p>
"""
PROVIDER = f"{LOGIN}/provider"
CALLBACK = f"{LOGIN}/callback"
NOT_YET = Denial(
    status=503,
    code="access_unknown",
    message="This scheduler has not read the key of sessions yet; ask again.",
    retry_after_s=2,
)
TOO_LARGE = Denial(
    status=403,
    code="session_too_large",
    message="You are in too many groups with a role here for one cookie: an admin can name fewer of them.",
)


def login_page(after: str, refusal: Denial | None = None, *, provider: bool) -> HTMLResponse:
    """The page. `after`: path that is shown after the login; `provider`: True: there is a provider."""
    place = local_path(after)
    offer = _PROVIDER.format(place=PROVIDER, after=escape(quote(place, safe=""))) if provider else ""
    said = "" if refusal is None else f'<p class="warn" role="alert">{escape(refusal.message)}</p>\n'
    text = _PAGE.format(style=_STYLE, said=said, action=LOGIN, after=escape(place), provider=offer)
    headers = dict(_HEADERS)
    if refusal is not None and refusal.retry_after_s is not None:
        headers["Retry-After"] = str(refusal.retry_after_s)
    return HTMLResponse(text, status_code=200 if refusal is None else refusal.status, headers=headers)


def local_path(path: str) -> str:
    """`path` if it is a page of this server, else the first page. It never leads to another server."""
    plain = path.isascii() and path.isprintable() and "\\" not in path
    return path if plain and path.startswith("/ui") else HOME


def show_next(path: str) -> Response:
    """Redirect a browser to the requested page."""
    return RedirectResponse(local_path(path), 303, headers={"Cache-Control": "no-store"})


def begin_session(done: Response, gate: AccessGate, principal: Principal) -> Denial | None:
    """Set a session for a principal on an answer, or return the refusal."""
    now = datetime.now(UTC)
    begun = gate.begin_session(principal, now)
    if begun is None:
        return NOT_YET
    if len(begun) > MAX_BYTES:
        return TOO_LARGE
    set_session(done, gate, begun, int((end_of(principal, now) - now).total_seconds()))
    return None


def set_session(response: Response, gate: AccessGate, value: str, max_age_s: int) -> None:
    """Set the cookie of a session; with 0 s, remove it."""
    set_cookie(response, COOKIE if gate.secure else PLAIN_COOKIE, value, max_age_s)


def set_cookie(response: Response, name: str, value: str, max_age_s: int) -> None:
    """Set a cookie that scripts cannot read. A name with `__Host-` needs TLS."""
    response.set_cookie(
        name,
        value,
        max_age=max_age_s,
        path="/",
        secure=name.startswith("__Host-"),
        httponly=True,
        samesite="lax",
    )


_log = structlog.stdlib.get_logger(__name__)

NOT_BEGUN = Denial(
    status=400,
    code="login_not_begun",
    message="This login was not begun in this browser, or longer than 10 minutes ago: try again.",
)


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
        principal = who_sends(gate, request.scope, credentials)
        if isinstance(principal, Denial):
            return login_page(after, principal, provider=provider) if is_form else answer_to(principal)
        done = show_next(after) if is_form else Response(status_code=204)
        refusal = begin_session(done, gate, principal)
        return done if refusal is None else answer_to(refusal)

    @routes.post("/ui/logout")
    async def logout() -> Response:
        """End the session of this browser. The token stays valid: revoke it if others have seen it."""
        done = RedirectResponse(LOGIN, 303)
        set_session(done, gate, "", 0)
        return done

    if services.browser_login and services.provider is not None:
        _add_provider(routes, services, services.provider)
    return routes


def _form(body: bytes) -> dict[str, str]:
    try:
        fields = parse_qs(body.decode(), max_num_fields=10)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in fields.items()}


def _json(body: bytes) -> dict[str, str]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return (
        {key: value for key, value in fields.items() if isinstance(value, str)}
        if isinstance(fields, dict)
        else {}
    )


def _add_provider(routes: APIRouter, services: ApiServices, provider: IdentityProvider) -> None:
    """Add the login at an identity provider: authorization code flow with PKCE.

    Any scheduler can complete a login that another one began.

    Source: OpenID Connect Core 1.0, section 3.1; RFC 9700; RFC 9207 (the parameter `iss`).
    """
    gate, logins = services.gate, _Logins(services, provider)

    @routes.get(PROVIDER)
    async def begin(request: Request) -> Response:
        """Redirect a browser to the provider, with a cookie for this login."""
        after, key = request.query_params.get("next", HOME), gate.session_key
        if key is None:
            return login_page(after, NOT_YET, provider=True)
        begun = login_state.begun(after, key)
        try:
            place = await logins.place(request, begun)
        except IdentityProviderError as exc:
            return login_page(after, _of_provider(exc), provider=True)
        done = RedirectResponse(place, 303, headers={"Cache-Control": "no-store"})
        lasts_s = int(login_state.LIFETIME.total_seconds())
        set_cookie(done, logins.cookie, begun.cookie(datetime.now(UTC)), lasts_s)
        return done

    @routes.get(CALLBACK)
    async def end(request: Request) -> Response:
        """Begin the session of a browser that returns from the provider."""
        begun = logins.begun(request)
        after = HOME if begun is None else begun.after
        done = show_next(after)
        refusal: Denial | None = NOT_BEGUN
        if begun is not None:
            session = await logins.found(request, begun)
            refusal = session if isinstance(session, Denial) else begin_session(done, gate, session)
        if refusal is not None:
            done = login_page(after, logins.noted(request, refusal), provider=True)
        set_cookie(done, logins.cookie, "", 0)
        return done


class _Logins:
    """The steps of a login."""

    def __init__(self, services: ApiServices, provider: IdentityProvider) -> None:
        self._gate, self._provider, self._registered = services.gate, provider, services.redirect_uri
        self.cookie = "__Host-nimbus-login" if services.gate.secure else "nimbus-login"

    async def place(self, request: Request, begun: LoginState) -> str:
        """URL at which the browser logs in. Raises IdentityProviderError."""
        return await self._provider.login_url(
            redirect_uri=self._redirect_uri(request),
            state=begun.state,
            nonce=begun.nonce,
            challenge=begun.challenge,
        )

    def begun(self, request: Request) -> LoginState | None:
        """The login of a returning browser; None: it is not ours, or expired."""
        key, jwts, query = self._gate.session_key, self._gate.jwts, request.query_params
        if key is None or jwts is None or query.get("iss", jwts.rules.issuer) != jwts.rules.issuer:
            return None
        carried = cookie(request.headers, self.cookie)
        return login_state.returned(carried, query.get("state", ""), key, datetime.now(UTC))

    async def found(self, request: Request, begun: LoginState) -> Principal | Denial:
        """The principal that the provider names, or the refusal."""
        jwts, query = self._gate.jwts, request.query_params
        code = query.get("code")
        if jwts is None or code is None:
            said = query.get("error", "no code")[:200]
            return Denial(status=400, code="login_refused", message=f"The identity provider says: {said}.")
        try:
            token = await self._provider.id_token(
                code=code, redirect_uri=self._redirect_uri(request), verifier=begun.verifier
            )
            return jwts.logged_in(token, begun.nonce, _address(request))
        except IdentityProviderError as exc:
            return _of_provider(exc)
        except JwtRefusedError as exc:
            return Denial(status=401, code=exc.code, message=f"The login failed: {exc}.")
        except AccessDeniedError as exc:
            return Denial(status=403, code=exc.code, message=str(exc))

    def noted(self, request: Request, refusal: Denial) -> Denial:
        """Log and count a refusal. Return it, or a 429 if there are too many from this address."""
        slower = self._gate.failed("login_refused", _address(request), time.monotonic())
        if slower is None:  # a 429 is not logged: it could fill the disk
            _log.info("login_refused", code=refusal.code, address=_address(request), error=refusal.message)
        return slower or refusal

    def _redirect_uri(self, request: Request) -> str:
        """The redirect URI: as configured, or with the host name that the browser uses."""
        # A foreign `Host` is refused before this.
        scheme, host = "https" if self._gate.secure else "http", request.headers.get("host", "")
        return self._registered or f"{scheme}://{host}{CALLBACK}"


def _of_provider(exc: IdentityProviderError) -> Denial:
    return Denial(status=400 if exc.refused else 503, code=exc.code, message=f"The login failed: {exc}.")


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
