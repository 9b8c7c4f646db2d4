"""Authenticates requests. Tokens are kept in memory, so an outage of the store does not block users."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter

from nimbus.access import session, tokens
from nimbus.access.oidc import JwtRefusedError, JwtVerifier, is_jwt
from nimbus.domain.cluster.access import (
    AccessDeniedError,
    AccessGrant,
    AccessRole,
    Principal,
    PrincipalSource,
    Token,
)

MAX_NAMES = 10_000
"""Limit of kept names. Beyond it, the names idle for longest are dropped, and have a full bucket again."""


class RateLimit:
    """A bucket for each name: `burst` at once, then `per_s`. Any thread; time is an argument, in seconds."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s, self._burst = per_s, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """For each name: what was left, and at what time."""
        self._lock = threading.Lock()

    def take(self, name: str, now_s: float) -> float:
        """Take one and return 0.0. If none is left, return the seconds until the next one."""
        with self._lock:
            left, at_s = self._buckets.pop(name, (self._burst, now_s))
            left = min(self._burst, left + max(0.0, now_s - at_s) * self._per_s)
            wait_s = 0.0 if left >= 1 else (1 - left) / self._per_s
            self._buckets[name] = (left if wait_s else left - 1, now_s)
            if len(self._buckets) > MAX_NAMES:
                self._buckets.popitem(last=False)
            return wait_s


FAILURES_PER_S, FAILURES_AT_ONCE = 0.2, 20
"""Limits of failing requests from one address. Successful requests from it are not limited."""
FAILURES = ("token_missing", "bad_scheme", "token_unknown", "token_expired", "token_invalid", "login_refused")
"""Codes of refusals with status 401. The last one is for all failed logins at the provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Why a request is not answered."""

    status: int
    code: str
    message: str
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Presented:
    """The credentials that a request has."""

    authorization: str = ""
    """Value of the header `Authorization`."""
    session: str = ""
    """Value of the session cookie."""
    address: str = ""


class AccessGate:
    """Authenticates requests and limits their rate. Any thread.

    Args:
        required: True: a request must have a token. False: a request without one has the role admin.
        per_s: Limit of requests of one principal per second; None: no limit.
        secure: True: browsers reach the pages by TLS, so that cookies can be marked as secure.
        registry: Registry of the counter of failures; None: they are not counted.
        jwts: Verifies tokens of the identity provider; None: there is no provider.
    """

    def __init__(
        self,
        *,
        required: bool = False,
        per_s: int | None = None,
        secure: bool = False,
        registry: CollectorRegistry | None = None,
        jwts: JwtVerifier | None = None,
    ) -> None:
        self.required, self.secure, self.jwts = required, secure, jwts
        self._in_file: Mapping[str, Token] = {}
        self._in_store: Mapping[str, Token] | None = None
        self._session_key: bytes | None = None
        self.grants: tuple[AccessGrant, ...] = ()
        """The grants of the cluster."""
        self._failures = RateLimit(FAILURES_PER_S, FAILURES_AT_ONCE)
        self._requests = None if per_s is None else RateLimit(per_s, 10 * per_s)
        self._failed = Counter(
            "nimbus_auth_failures_total",
            "Requests without a valid token, also those answered 429: token_missing, bad_scheme, "
            "token_unknown (or revoked), token_expired, token_invalid (of an identity provider), "
            "login_refused (a login there).",
            ("reason",),
            registry=registry,
        )
        for reason in FAILURES:
            self._failed.labels(reason)

    def know_store(
        self, tokens: Mapping[str, Token], session_key: bytes, grants: tuple[AccessGrant, ...] = ()
    ) -> None:
        """Replace the tokens and grants of the cluster."""
        self._in_store, self._session_key, self.grants = tokens, session_key, grants

    def know_file(self, tokens: Mapping[str, Token]) -> None:
        """Replace the tokens of this scheduler's file."""
        self._in_file = tokens

    @property
    def in_file(self) -> Mapping[str, Token]:
        """The tokens of this scheduler's file that the cluster does not have, by id."""
        known = self._in_store or {}
        return {key: token for key, token in self._in_file.items() if key not in known}

    def admit(self, sent: Presented, now: datetime, now_s: float) -> Principal | Denial:
        """The principal of a request, or the refusal."""
        principal = self._identified(sent, now)
        if isinstance(principal, Denial):
            if principal.status != 401:
                return principal
            return self.failed(principal.code, sent.address, now_s) or principal
        if self._requests is not None and principal.account:
            wait_s = self._requests.take(principal.account, now_s)
            if wait_s:
                return _slower("requests", wait_s)
        return principal

    def failed(self, code: str, address: str, now_s: float) -> Denial | None:
        """Count one of FAILURES. Return a refusal if there are too many from this address."""
        self._failed.labels(code).inc()
        wait_s = self._failures.take(address, now_s)
        return _slower("failures", wait_s) if wait_s else None

    def still_admits(self, principal: Principal, now: datetime, grants: tuple[AccessGrant, ...] = ()) -> bool:
        """True while the token or login of an admitted principal, if any, is valid, with the same grants."""
        if grants != tuple(grant for grant in self.grants if principal.owns(grant.who)):
            return False
        if principal.expires_at is not None and principal.expires_at <= now:
            return False
        if not principal.token_id:
            return True
        token = self._known().get(principal.token_id)
        return token is not None and not tokens.expired(token, now)

    @property
    def session_key(self) -> bytes | None:
        """The key that signs sessions and begun logins; None: it was not read yet."""
        return self._session_key

    def begin_session(self, principal: Principal, now: datetime) -> str | None:
        """A session for a principal with a token or a login; None: it cannot be signed yet."""
        key = self._session_key
        return None if key is None else session.session_for(principal, key, session.end_of(principal, now))

    def _identified(self, sent: Presented, now: datetime) -> Principal | Denial:
        if sent.authorization:
            return self._by_token(sent, now)
        if sent.session and (principal := self._by_session(sent, now)) is not None:
            return principal
        if self.required:
            return Denial(
                status=401,
                code="token_missing",
                message="This scheduler requires authentication: send a token (`Authorization: Bearer "
                "nbs_...`, `nimbus login`, NIMBUS_TOKEN, or NIMBUS_TOKEN_FILE).",
            )
        return Principal(
            name="anonymous",
            role=AccessRole.ADMIN,
            source=PrincipalSource.ANONYMOUS,
            address=sent.address,
        )

    def _by_token(self, sent: Presented, now: datetime) -> Principal | Denial:
        scheme, _, text = sent.authorization.partition(" ")
        if scheme.lower() != "bearer":
            return Denial(status=401, code="bad_scheme", message="Only `Authorization: Bearer` is known.")
        if self.jwts is not None and is_jwt(text):
            return _by_jwt(self.jwts, text.strip(), sent.address)
        token = tokens.find(text.strip(), self._known())
        if token is not None:
            return self._principal(token, sent, now)
        if self._in_store is None:
            return Denial(
                status=503,
                code="access_unknown",
                message="This scheduler has not read the tokens of the cluster yet; ask again.",
                retry_after_s=2,
            )
        return Denial(status=401, code="token_unknown", message="The token is not known, or was revoked.")

    def _by_session(self, sent: Presented, now: datetime) -> Principal | None:
        key = self._session_key
        said = None if key is None else session.read(sent.session, key, now)
        if said is None:
            return None
        if isinstance(said.holder, str):
            token = self._known().get(said.holder)
            principal = None if token is None else self._principal(token, sent, now)
            return principal if isinstance(principal, Principal) else None
        if self.jwts is None:
            return None
        try:
            return self.jwts.principal(**said.holder._asdict(), expires_at=said.ends_at, address=sent.address)
        except AccessDeniedError:  # the groups have no role any more
            return None

    def _known(self) -> Mapping[str, Token]:
        return {**self._in_file, **(self._in_store or {})} if self._in_file else self._in_store or {}

    def _principal(self, token: Token, sent: Presented, now: datetime) -> Principal | Denial:
        if why := tokens.expired(token, now):
            return Denial(status=401, code="token_expired", message=why)
        return Principal(
            name=token.name,
            role=token.role,
            source=PrincipalSource.TOKEN if token.id in (self._in_store or {}) else PrincipalSource.FILE,
            teams=token.teams,
            token_id=token.id,
            address=sent.address,
        )


def _by_jwt(jwts: JwtVerifier, text: str, address: str) -> Principal | Denial:
    if not jwts.has_keys:
        return Denial(
            status=503,
            code="access_unknown",
            message="This scheduler has not read the keys of the identity provider yet; ask again.",
            retry_after_s=10,
        )
    try:
        return jwts.bearer(text, address)
    except JwtRefusedError as exc:
        return Denial(status=401, code=exc.code, message=f"{exc}.")
    except AccessDeniedError as exc:
        return Denial(status=403, code=exc.code, message=str(exc))


def _slower(what: str, wait_s: float) -> Denial:
    return Denial(
        status=429,
        code="too_many_requests",
        message=f"Too many {what}: wait, then go on more slowly.",
        retry_after_s=max(1, math.ceil(wait_s)),
    )
