"""The cookie that a browser keeps from the begin of a login at an identity provider to its end.

It is signed with the cluster's key, so that any scheduler can complete a login that another one began, and no
scheduler has to store it. The nonce and the PKCE secret are derived from the cluster's key and `state`, so
the cookie contains neither.

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
"""Time that a person has to log in at the provider."""
LONGEST_PLACE = 2000
"""Limit of the quoted path that is shown after the login: it keeps the cookie small."""


class LoginState:
    """A login that was begun.

    Args:
        state: The value that the provider returns with the browser.
        after: The path that is shown after the login.
        key: The cluster's key.
    """

    def __init__(self, state: str, after: str, key: bytes) -> None:
        self.state, self.after, self._key = state, after, key

    @property
    def nonce(self) -> str:
        """The nonce that the ID token must contain."""
        return self._made_for("nonce")

    @property
    def verifier(self) -> str:
        """The secret of PKCE."""
        return self._made_for("verifier")

    @property
    def challenge(self) -> str:
        """The PKCE challenge that is sent to the provider, method S256."""
        return _base64url(hashlib.sha256(self.verifier.encode()).digest())

    def cookie(self, now: datetime) -> str:
        """The value of the cookie."""
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
    """The login of a returning browser; None: it is expired, belongs to another state, or is not ours."""
    said, _, signed = cookie.rpartition(".")
    if not hmac.compare_digest(signature(_PURPOSE + said, key).encode(), signed.encode()):
        return None
    begun_with, expiry, after = said.split(".", 2)
    if int(expiry) <= now.timestamp() or not hmac.compare_digest(begun_with.encode(), state.encode()):
        return None
    return LoginState(begun_with, unquote(after), key)


_PURPOSE = "login\n"
"""Prefix of the signed text, so that a session cannot be used as a begun login, or the reverse."""


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
