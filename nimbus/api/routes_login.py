"""Login of browsers at an identity provider: the authorization code flow with PKCE. Any scheduler may end it.

Source: OpenID Connect Core 1.0, section 3.1; RFC 9700; RFC 9207 (the parameter `iss`).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import structlog
from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from nimbus.access import login_state
from nimbus.access.gate import Refusal
from nimbus.access.login_state import LoginState
from nimbus.access.oidc import JwtRefusedError
from nimbus.api.access import cookie
from nimbus.api.login_page import (
    CALLBACK,
    HOME,
    NOT_YET,
    PROVIDER,
    begin_session,
    login_page,
    set_cookie,
    show_next,
)
from nimbus.api.services import ApiServices
from nimbus.domain.access import AccessDeniedError, Principal
from nimbus.ports import IdentityProvider, IdentityProviderError

_log = structlog.stdlib.get_logger(__name__)

NOT_BEGUN = Refusal(
    status=400,
    code="login_not_begun",
    message="This login was not begun in this browser, or longer than 10 minutes ago: try again.",
)


def router(services: ApiServices, provider: IdentityProvider) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter(include_in_schema=False)
    gate, logins = services.gate, _Logins(services, provider)

    @routes.get(PROVIDER)
    async def begin(request: Request) -> Response:
        """Lead a browser to the provider, and have it keep what this login was begun with."""
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
        """Begin the session of a browser that comes back from the provider."""
        begun = logins.begun(request)
        after = HOME if begun is None else begun.after
        done = show_next(after)
        refusal: Refusal | None = NOT_BEGUN
        if begun is not None:
            found = await logins.found(request, begun)
            refusal = found if isinstance(found, Refusal) else begin_session(done, gate, found)
        if refusal is not None:
            done = login_page(after, logins.noted(request, refusal), provider=True)
        set_cookie(done, logins.cookie, "", 0)
        return done

    return routes


class _Logins:
    """The steps of a login."""

    def __init__(self, services: ApiServices, provider: IdentityProvider) -> None:
        self._gate, self._provider, self._registered = services.gate, provider, services.redirect_uri
        self.cookie = "__Host-nimbus-login" if services.gate.secure else "nimbus-login"

    async def place(self, request: Request, begun: LoginState) -> str:
        """Where the browser logs in. IdentityProviderError."""
        return await self._provider.login_url(
            redirect_uri=self._redirect_uri(request),
            state=begun.state,
            nonce=begun.nonce,
            challenge=begun.challenge,
        )

    def begun(self, request: Request) -> LoginState | None:
        """The login that a browser comes back from; None: it is none of ours, or over."""
        key, jwts, query = self._gate.session_key, self._gate.jwts, request.query_params
        if key is None or jwts is None or query.get("iss", jwts.rules.issuer) != jwts.rules.issuer:
            return None
        carried = cookie(request.headers, self.cookie)
        return login_state.returned(carried, query.get("state", ""), key, datetime.now(UTC))

    async def found(self, request: Request, begun: LoginState) -> Principal | Refusal:
        """Whom the provider names."""
        jwts, query = self._gate.jwts, request.query_params
        code = query.get("code")
        if jwts is None or code is None:
            said = query.get("error", "no code")[:200]
            return _refusal(400, "login_refused", f"The identity provider says: {said}.")
        try:
            token = await self._provider.id_token(
                code=code, redirect_uri=self._redirect_uri(request), verifier=begun.verifier
            )
            return jwts.logged_in(token, begun.nonce, _address(request))
        except IdentityProviderError as exc:
            return _of_provider(exc)
        except JwtRefusedError as exc:
            return _refusal(401, exc.code, f"The login failed: {exc}.")
        except AccessDeniedError as exc:
            return _refusal(403, exc.code, str(exc))

    def noted(self, request: Request, refusal: Refusal) -> Refusal:
        """A refusal that was logged and counted; another one, if there are too many from there."""
        slower = self._gate.failed("login_refused", _address(request), time.monotonic())
        if slower is None:  # else strangers could fill the disk
            _log.info("login_refused", code=refusal.code, address=_address(request), error=refusal.message)
        return slower or refusal

    def _redirect_uri(self, request: Request) -> str:
        """As it was registered: as configured, or of the name that the browser knows us by."""
        # A foreign `Host` was refused before.
        scheme, host = "https" if self._gate.secure else "http", request.headers.get("host", "")
        return self._registered or f"{scheme}://{host}{CALLBACK}"


def _of_provider(exc: IdentityProviderError) -> Refusal:
    return _refusal(400 if exc.refused else 503, exc.code, f"The login failed: {exc}.")


def _refusal(status: int, code: str, message: str) -> Refusal:
    return Refusal(status=status, code=code, message=message)


def _address(request: Request) -> str:
    return request.client.host if request.client else ""
