"""What a browser carries from the begin of a login at an identity provider to its end.

It is a cookie, signed for the cluster, so any scheduler can end what another one began, and none has to
remember it. The nonce and the secret of PKCE are made of the cluster's key and `state`, so the
cookie has neither.

Source: RFC 7636 (PKCE), RFC 9700 (best current practices of OAuth 2.0), section 2.1.1.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from datetime import datetime, timedelta
from urllib.parse import quote, unquote

from nimbus.access.session import signature

LIFETIME = timedelta(minutes=10)
"""For a person to log in at the provider."""
LONGEST_PLACE = 2000
"""Of what is shown after the login, as it is quoted: the cookie must not grow too large."""


class LoginState:
    """One login that was begun.

    Args:
        state: What the provider sends back with the browser.
        after: The path that is shown after the login.
        key: The cluster's.
    """

    def __init__(self, state: str, after: str, key: bytes) -> None:
        self.state, self.after, self._key = state, after, key

    @property
    def nonce(self) -> str:
        """What the ID token must hold."""
        return self._made_for("nonce")

    @property
    def verifier(self) -> str:
        """The secret of PKCE."""
        return self._made_for("verifier")

    @property
    def challenge(self) -> str:
        """What the provider is told of the secret, method S256."""
        return _base64url(hashlib.sha256(self.verifier.encode()).digest())

    def cookie(self, now: datetime) -> str:
        """What the browser carries."""
        said = f"{self.state}.{int((now + LIFETIME).timestamp())}.{quote(self.after, safe='')}"
        return f"{said}.{signature(_PURPOSE + said, self._key)}"

    def _made_for(self, purpose: str) -> str:
        made = hmac.new(self._key, f"{purpose}\n{self.state}".encode(), hashlib.sha256)
        return _base64url(made.digest())


def begun(after: str, key: bytes) -> LoginState:
    """Begin a login."""
    place = after if len(quote(after, safe="")) <= LONGEST_PLACE else ""
    return LoginState(secrets.token_urlsafe(32), place, key)


def returned(cookie: str, state: str, key: bytes, now: datetime) -> LoginState | None:
    """The login that a browser comes back from; None: it is over, another one, or none of ours."""
    said, _, signed = cookie.rpartition(".")
    if not hmac.compare_digest(signature(_PURPOSE + said, key).encode(), signed.encode()):
        return None
    begun_with, expiry, after = said.split(".", 2)
    if int(expiry) <= now.timestamp() or not hmac.compare_digest(begun_with.encode(), state.encode()):
        return None
    return LoginState(begun_with, unquote(after), key)


_PURPOSE = "login\n"
"""Begins what is signed, so that no session is a login that was begun, or the other way round."""


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
