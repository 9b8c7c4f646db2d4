"""An identity provider for tests: discovery, keys, authorization and tokens over HTTP, on loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from nimbus.access.oidc import Grants, GroupRole, JwtRules, JwtVerifier
from nimbus.adapters.oidc import ClientRegistration
from nimbus.domain.cluster.access import AccessRole

CLIENT_ID, CLIENT_SECRET = "nimbus", "s3cret of/nimbus"

CLIENT = ClientRegistration(client_id=CLIENT_ID, secret=CLIENT_SECRET)


def verifier(
    issuer: str, groups: dict[str, GroupRole], default_role: AccessRole | None = None
) -> JwtVerifier:
    """A verifier of an issuer's tokens, for our client id."""
    rules = JwtRules(
        issuer=issuer,
        audience=CLIENT_ID,
        client_id=CLIENT_ID,
        algorithms=("RS256", "ES256"),
        name_claim="sub",
        groups_claim="groups",
    )
    return JwtVerifier(rules, Grants(issuer=issuer, by_group=groups, default_role=default_role))


@cache
def rsa_key(kid: str) -> Any:
    """The key of an id. Keys are made once, because that is slow."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def ec_key(kid: str) -> Any:
    return ec.generate_private_key(ec.SECP256R1())


def jwk(kid: str, **fields: object) -> dict[str, Any]:
    """The public part of a key, in the published form. Ids of EC keys begin with `ec`."""
    algorithm: Any
    if kid.startswith("ec"):
        algorithm, key, alg = jwt.algorithms.ECAlgorithm, ec_key(kid), "ES256"
    else:
        algorithm, key, alg = jwt.algorithms.RSAAlgorithm, rsa_key(kid), "RS256"
    found = json.loads(algorithm.to_jwk(key.public_key()))
    return {**found, "kid": kid, "use": "sig", "alg": alg, **fields}


@dataclass
class Code:
    """The data of a code, until it is used."""

    redirect_uri: str
    nonce: str | None
    challenge: str


@dataclass
class Issuer:
    """The provider. Tests change its fields."""

    keys: list[dict[str, Any]] = field(default_factory=lambda: [jwk("one")])
    signs_with: str = "one"
    person: dict[str, Any] = field(default_factory=lambda: {"sub": "ada", "groups": ["data-platform"]})
    lasts_s: int = 3600
    forget_nonce: bool = False
    down: bool = False
    held: threading.Event | None = None
    """While it is not set, the provider does not answer."""
    drips: threading.Event | None = None
    """While it is not set, the answer with the token is sent byte by byte, and does not end."""
    changes: dict[str, Any] = field(default_factory=dict)
    """Of the provider's description."""
    padding: int = 0
    """Bytes that are added to the keys."""
    form_secret: str | None = ""
    """The secret that the form must contain; None: not needed."""
    posted: tuple[str | None, dict[str, str]] = (None, {})
    """The last header and form that the token endpoint received."""
    asked: Counter[str] = field(default_factory=Counter)
    codes: dict[str, Code] = field(default_factory=dict)

    def __enter__(self) -> Self:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer._get(self)

            def do_POST(self) -> None:
                issuer._post(self)

            def log_message(self, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        for event in (self.held, self.drips):
            if event is not None:
                event.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def token(self, *, kid: str | None = None, header: dict[str, Any] | None = None, **claims: Any) -> str:
        """A signed token for our client id. Claims that are None are left out."""
        kid = kid or self.signs_with
        now = int(time.time())
        whole = {"iss": self.url, "aud": CLIENT_ID, "iat": now, "exp": now + self.lasts_s, **self.person}
        whole = {name: value for name, value in (whole | claims).items() if value is not None}
        key, alg = (ec_key(kid), "ES256") if kid.startswith("ec") else (rsa_key(kid), "RS256")
        return jwt.encode(whole, key, algorithm=alg, headers={"kid": kid, **(header or {})})

    def _get(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        self.asked[parts.path] += 1
        if self.held is not None:
            self.held.wait(60)
        if self.down:
            self._answer(request, 500, {"error": "server_error"})
        elif parts.path == "/.well-known/openid-configuration":
            described = {
                "issuer": self.url,
                "jwks_uri": f"{self.url}/keys",
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
            }
            self._answer(request, 200, described | self.changes)
        elif parts.path == "/keys":
            self._answer(request, 200, {"keys": self.keys, "padding": "x" * self.padding})
        elif parts.path == "/authorize":
            self._authorize(request, dict(parse_qsl(parts.query)))
        else:
            self._answer(request, 302, {}, Location=f"{self.url}/keys")

    def _authorize(self, request: BaseHTTPRequestHandler, query: dict[str, str]) -> None:
        """The page on which a person agrees. `agree` in the query stands for the click."""
        if query.get("agree") is None:
            place = f"/authorize?{urlencode({**query, 'agree': '1'})}".replace("&", "&amp;")
            page = f'<!doctype html><title>Provider</title><a id="agree" href="{place}">I am Ada</a>'
            self._send(request, 200, page.encode(), **{"Content-Type": "text/html"})
            return
        code = secrets.token_urlsafe(16)
        self.codes[code] = Code(query["redirect_uri"], query.get("nonce"), query["code_challenge"])
        back = urlencode({"code": code, "state": query["state"], "iss": self.url})
        self._answer(request, 302, {}, Location=f"{query['redirect_uri']}?{back}")

    def _post(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers["Content-Length"])).decode()
        form, path = dict(parse_qsl(body)), urlsplit(request.path).path
        self.posted = (request.headers.get("Authorization"), form)
        self.asked[path] += 1
        if self.held is not None:
            self.held.wait(60)
        if self.drips is not None:
            self._drip(request, self.drips)
            return
        code = self.codes.pop(form.get("code", ""), None)
        made = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(made).rstrip(b"=").decode()
        basic = base64.b64encode(b"nimbus:s3cret%20of%2Fnimbus").decode()
        secret = form.get("client_secret")
        if request.headers.get("Authorization") != f"Basic {basic}" and secret != self.form_secret:
            self._answer(request, 401, {"error": "invalid_client"})
        elif code is None or code.challenge != challenge or code.redirect_uri != form.get("redirect_uri"):
            self._answer(request, 400, {"error": "invalid_grant"})
        else:
            nonce = None if self.forget_nonce else code.nonce
            self._answer(request, 200, {"id_token": self.token(nonce=nonce), "token_type": "Bearer"})

    def _drip(self, request: BaseHTTPRequestHandler, until: threading.Event) -> None:
        request.send_response(200)
        request.end_headers()
        with suppress(ConnectionError):
            while not until.wait(0.02):
                request.wfile.write(b" ")

    def _answer(
        self, request: BaseHTTPRequestHandler, status: int, body: dict[str, Any], **headers: str
    ) -> None:
        self._send(
            request, status, json.dumps(body).encode(), **{"Content-Type": "application/json"} | headers
        )

    def _send(self, request: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
        with suppress(ConnectionError):  # the client did not wait
            request.send_response(status)
            for name, value in headers.items():
                request.send_header(name, value)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)
