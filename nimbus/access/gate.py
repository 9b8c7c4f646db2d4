"""Finds out who sends a request. Knows the tokens from memory, so an outage of the store locks nobody out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter

from nimbus.access import session, tokens
from nimbus.access.limits import RateLimit
from nimbus.domain.access import AccessRole, Principal, PrincipalSource, Token

FAILURES_PER_S, FAILURES_AT_ONCE = 0.2, 20
"""Of one address. Only requests that fail are held up: a neighbour behind the same address is not."""
FAILURES = ("token_missing", "bad_scheme", "token_unknown", "token_expired")
"""Codes of the refusals with status 401."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    code: str
    message: str
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """What a request says of who sends it."""

    authorization: str = ""
    """The header."""
    session: str = ""
    """The cookie."""
    address: str = ""


class Gate:
    """Says who asks. Any thread.

    Args:
        required: Whether a request must have a token. Else one without is an admin's.
        per_s: Requests of one principal; None: any number.
        secure: Whether browsers reach the pages by TLS, so that their cookies may say so.
        registry: Where failures are counted; None: nowhere.
    """

    def __init__(
        self,
        *,
        required: bool = False,
        per_s: int | None = None,
        secure: bool = False,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.required, self.secure = required, secure
        self._in_file: Mapping[str, Token] = {}
        self._in_store: Mapping[str, Token] | None = None
        self._session_key: bytes | None = None
        self._failures = RateLimit(FAILURES_PER_S, FAILURES_AT_ONCE)
        self._requests = None if per_s is None else RateLimit(per_s, 10 * per_s)
        self._failed = Counter(
            "nimbus_auth_failures_total",
            "Requests without a token that lets them in, by the code of the refusal.",
            ("reason",),
            registry=registry,
        )
        for reason in FAILURES:
            self._failed.labels(reason)

    def know_store(self, found: Mapping[str, Token], session_key: bytes) -> None:
        """Take the tokens of the cluster."""
        self._in_store, self._session_key = found, session_key

    def know_file(self, found: Mapping[str, Token]) -> None:
        """Take the tokens of this scheduler's file."""
        self._in_file = found

    def admit(self, sent: Credentials, now: datetime, now_s: float) -> Principal | Refusal:
        """Who asks, or why nobody is answered."""
        principal = self._identified(sent, now)
        if isinstance(principal, Refusal):
            if principal.status != 401:
                return principal
            self._failed.labels(principal.code).inc()
            wait_s = self._failures.take(sent.address, now_s)
            return _slower("failures", wait_s) if wait_s else principal
        if self._requests is not None and principal.token_id:
            wait_s = self._requests.take(principal.token_id, now_s)
            if wait_s:
                return _slower("requests", wait_s)
        return principal

    def still_admits(self, principal: Principal, now: datetime) -> bool:
        """Whether the token of who was admitted is still there, and has not expired. True without a token."""
        if not principal.token_id:
            return True
        token = self._known().get(principal.token_id)
        return token is not None and not tokens.expired(token, now)

    def begin_session(self, principal: Principal, now: datetime) -> str | None:
        """A session for who has a token; None: it cannot be signed yet."""
        key = self._session_key
        return None if key is None else session.session_for(principal.token_id, key, now)

    def _identified(self, sent: Credentials, now: datetime) -> Principal | Refusal:
        if sent.authorization:
            return self._by_token(sent, now)
        if sent.session and (found := self._by_session(sent, now)) is not None:
            return found
        if self.required:
            return Refusal(
                status=401,
                code="token_missing",
                message="This scheduler asks who you are: send a token (`Authorization: Bearer nbs_...`, "
                "`nimbus login`, or NIMBUS_TOKEN).",
            )
        return Principal(
            name="anonymous",
            role=AccessRole.ADMIN,
            source=PrincipalSource.ANONYMOUS,
            address=sent.address,
        )

    def _by_token(self, sent: Credentials, now: datetime) -> Principal | Refusal:
        scheme, _, text = sent.authorization.partition(" ")
        if scheme.lower() != "bearer":
            return Refusal(status=401, code="bad_scheme", message="Only `Authorization: Bearer` is known.")
        known = self._known()
        token = tokens.find(text.strip(), known)
        if token is not None:
            return self._principal(token, sent, now)
        if self._in_store is None:
            return Refusal(
                status=503,
                code="access_unknown",
                message="This scheduler has not read the tokens of the cluster yet; ask again.",
                retry_after_s=2,
            )
        return Refusal(status=401, code="token_unknown", message="The token is not known, or was revoked.")

    def _by_session(self, sent: Credentials, now: datetime) -> Principal | None:
        key = self._session_key
        token_id = None if key is None else session.token_of(sent.session, key, now)
        token = None if token_id is None else self._known().get(token_id)
        found = None if token is None else self._principal(token, sent, now)
        return found if isinstance(found, Principal) else None

    def _known(self) -> Mapping[str, Token]:
        return {**self._in_file, **(self._in_store or {})} if self._in_file else self._in_store or {}

    def _principal(self, token: Token, sent: Credentials, now: datetime) -> Principal | Refusal:
        if why := tokens.expired(token, now):
            return Refusal(status=401, code="token_expired", message=why)
        return Principal(
            name=token.name,
            role=token.role,
            source=PrincipalSource.TOKEN if token.id in (self._in_store or {}) else PrincipalSource.FILE,
            teams=token.teams,
            token_id=token.id,
            address=sent.address,
        )


def _slower(what: str, wait_s: float) -> Refusal:
    return Refusal(
        status=429,
        code="too_many_requests",
        message=f"Too many {what}: wait, then go on more slowly.",
        retry_after_s=max(1, math.ceil(wait_s)),
    )
