"""A client of an OpenID Connect provider: fetches its description and keys, exchanges codes for tokens.

Runs on the API's event loop. Addresses come from the provider's description, which is fetched from the
configured issuer. Redirects are not followed, and every response is limited in bytes and time.

Source: OpenID Connect Discovery 1.0; RFC 6749, sections 2.3.1 and 4.1.3; RFC 7517 (JWK).
"""

from __future__ import annotations

import asyncio
import json
import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
import structlog
from prometheus_client import CollectorRegistry, Counter

from nimbus.access.oidc import JwtVerifier
from nimbus.config.texts import is_loopback
from nimbus.ports import IdentityProviderError

_log = structlog.stdlib.get_logger(__name__)

FETCH_PAUSE_S = 10.0
"""Shortest time between fetches of the keys; plus up to a fifth, so that schedulers do not fetch together."""
FRESH_S = 300.0
"""Older keys are fetched again when a token is checked, because a key may have been withdrawn."""
ANSWER_S = 5.0
"""Time limit of one response, from the connection to the last byte."""
MAX_BYTES = 256 * 1024
MAX_LOGINS = 16
"""Most codes that are exchanged at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRegistration:
    """This cluster's client registration at the provider."""

    client_id: str
    secret: str | None = None
    """None: a public client, which uses only PKCE."""
    scopes: Sequence[str] = ("openid",)


@dataclass(frozen=True, slots=True)
class _Description:
    """The used parts of the provider's description."""

    jwks_uri: str
    authorization_endpoint: str
    token_endpoint: str
    takes_basic: bool
    """Whether the token endpoint accepts id and secret in the header `Authorization`."""


class OidcProvider:
    """See `nimbus.ports.IdentityProvider`. `jwts` gets the keys. Without a `client` no browser logs in."""

    def __init__(
        self,
        issuer: str,
        client: ClientRegistration | None,
        jwts: JwtVerifier,
        registry: CollectorRegistry | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._issuer, self._client, self._jwts, self._clock = issuer, client, jwts, clock
        self._tls = ssl.create_default_context()  # once, because reading all authorities takes 20 ms
        self._known: _Description | None = None
        self._fetching: asyncio.Task[None] | None = None
        self._fetched_at_s, self._next_at_s = -FRESH_S, 0.0
        self._logins = asyncio.Semaphore(MAX_LOGINS)
        self._fetches = Counter(
            "nimbus_oidc_fetches_total",
            "Fetches of the identity provider's description and keys: done, failed. Only with an identity "
            "provider.",
            ("outcome",),
            registry=registry,
        )
        for outcome in ("done", "failed"):
            self._fetches.labels(outcome)

    async def prepare(self, token: str) -> None:
        if self._jwts.lacks_key(token):
            await self._fetched()
        elif self._clock() - self._fetched_at_s > FRESH_S:
            self._fetch_soon()

    async def login_url(self, *, redirect_uri: str, state: str, nonce: str, challenge: str) -> str:
        described, client = await self._described(), self._registered()
        query = {
            "response_type": "code",
            "client_id": client.client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(client.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        joint = "&" if urlsplit(described.authorization_endpoint).query else "?"
        return f"{described.authorization_endpoint}{joint}{urlencode(query)}"

    async def id_token(self, *, code: str, redirect_uri: str, verifier: str) -> str:
        if self._logins.locked():
            raise IdentityProviderError("too many logins wait for the identity provider: try again")
        async with self._logins:
            described, client = await self._described(), self._registered()
            form = {
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": redirect_uri,
                "client_id": client.client_id,
                "code_verifier": verifier,
            }
            auth = None
            if client.secret is not None and described.takes_basic:
                auth = (quote(client.client_id, safe=""), quote(client.secret, safe=""))
            elif client.secret is not None:
                form["client_secret"] = client.secret
            answer = await self._ask("POST", described.token_endpoint, data=form, auth=auth)
            token = answer.get("id_token")
            if not isinstance(token, str):
                raise IdentityProviderError(
                    "the identity provider gave no ID token: is openid in oidc.scopes?"
                )
            await self.prepare(token)
            return token

    async def fetch(self) -> int:
        """Fetch description and keys now; return the number of usable keys. IdentityProviderError."""
        described = self._read(
            await self._ask("GET", f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        )
        usable = self._take(await self._ask("GET", described.jwks_uri))
        self._known, self._fetched_at_s = described, self._clock()
        return usable

    def _registered(self) -> ClientRegistration:
        if self._client is None:
            raise IdentityProviderError("browsers do not log in here: oidc.client_id is not given")
        return self._client

    async def _described(self) -> _Description:
        if self._known is None:
            await self._fetched()
        if self._known is None:
            raise IdentityProviderError("the identity provider does not answer: try again, or use a token")
        return self._known

    async def _fetched(self) -> None:
        """Wait for a running fetch, or start one unless the last one was a moment ago."""
        self._fetch_soon()
        if self._fetching is not None:
            await asyncio.wait({self._fetching}, timeout=ANSWER_S)

    def _fetch_soon(self) -> None:
        if self._fetching is not None and not self._fetching.done():
            return
        self._fetching = None
        if self._clock() >= self._next_at_s:
            pause_s = FETCH_PAUSE_S * random.uniform(1.0, 1.2)  # noqa: S311 - spreads load, hides nothing
            self._next_at_s = self._clock() + pause_s
            self._fetching = asyncio.create_task(self._fetch_logged())

    async def _fetch_logged(self) -> None:
        """Fetch description and keys. If it fails, the old ones stay."""
        try:
            usable = await self.fetch()
        except IdentityProviderError as exc:
            self._fetches.labels("failed").inc()
            _log.warning("oidc_keys_unavailable", issuer=self._issuer, error=str(exc))
            return
        self._fetches.labels("done").inc()
        _log.info("oidc_keys_fetched", issuer=self._issuer, keys=usable)

    def _take(self, document: Mapping[str, Any]) -> int:
        """Store the keys of a document; return the number of usable keys. IdentityProviderError: none."""
        keys = document.get("keys")
        usable = self._jwts.know_keys(keys if isinstance(keys, list) else [])
        if not usable:
            raise IdentityProviderError("the provider has no key that can be used")
        return usable

    def _read(self, document: Mapping[str, Any]) -> _Description:
        if document.get("issuer") != self._issuer:
            raise IdentityProviderError(
                f"the provider calls itself {str(document.get('issuer'))[:200]!r}, not {self._issuer!r}"
            )
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        login = self._client is not None  # else the provider may have only keys, like that of Kubernetes
        return _Description(
            jwks_uri=self._endpoint(document, "jwks_uri"),
            authorization_endpoint=self._endpoint(document, "authorization_endpoint") if login else "",
            token_endpoint=self._endpoint(document, "token_endpoint") if login else "",
            takes_basic=isinstance(methods, list) and "client_secret_basic" in methods,
        )

    def _endpoint(self, document: Mapping[str, Any], name: str) -> str:
        """An address of the description: https, or http if the provider itself is on this host."""
        place = document.get(name)
        if not isinstance(place, str) or not _is_safe(place, plain=not self._issuer.startswith("https:")):
            raise IdentityProviderError(f"{name} of the provider is no https address")
        return place

    async def _ask(self, method: str, place: str, **request: Any) -> dict[str, Any]:
        """The JSON object in the provider's response. IdentityProviderError."""
        try:
            async with asyncio.timeout(ANSWER_S):
                status, body = await self._answer(method, place, request)
            answer = json.loads(body)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError, RecursionError) as exc:
            why = (
                "it took too long" if isinstance(exc, TimeoutError) else str(exc)[:200] or type(exc).__name__
            )
            raise IdentityProviderError(f"no usable answer from {_host(place)}: {why}") from exc
        if not isinstance(answer, dict) or status != httpx.codes.OK:
            code = answer.get("error") if isinstance(answer, dict) else None
            raise IdentityProviderError(
                f"{_host(place)} answered {status}{f' ({code[:100]})' if isinstance(code, str) else ''}",
                refused=400 <= status < 500,
            )
        return answer

    async def _answer(self, method: str, place: str, request: Mapping[str, Any]) -> tuple[int, bytes]:
        # `identity`, because few compressed bytes can unpack to very many.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "nimbus"}
        async with (
            httpx.AsyncClient(verify=self._tls, timeout=ANSWER_S, trust_env=False) as http,
            http.stream(method, place, headers=headers, follow_redirects=False, **request) as answer,
        ):
            body = bytearray()
            async for part in answer.aiter_raw():
                body += part
                if len(body) > MAX_BYTES:
                    raise ValueError(f"the answer is above {MAX_BYTES} bytes")
            return answer.status_code, bytes(body)


def _is_safe(place: str, *, plain: bool) -> bool:
    """True if a secret may be sent to an address: with TLS, or, if `plain`, on this host."""
    try:
        parts = urlsplit(place)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (plain and parts.scheme == "http" and is_loopback(host))
    )


def _host(place: str) -> str:
    """The part of an address that may be logged; the rest may contain secrets."""
    return urlsplit(place).netloc.rpartition("@")[2]
