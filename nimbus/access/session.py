"""Sessions of browsers: a signed cookie that names the principal. Only this cluster's schedulers can sign it.

It names a token, which must still exist, or the person and groups from an identity provider. It contains no
secret of either. Any scheduler can verify it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from nimbus.domain.cluster.access import Principal, PrincipalSource

LIFETIME = timedelta(hours=12)
MAX_BYTES = 3800
"""Limit of a cookie in bytes. Browsers drop a cookie that has more than 4,096 with its name."""
_OIDC = "oidc-"
"""Prefix of a login at a provider. No token id begins with it."""


class Login(NamedTuple):
    """A person, as named by an identity provider."""

    name: str
    issuer: str
    groups: tuple[str, ...]


class BrowserSession(NamedTuple):
    """The content of a valid session cookie."""

    holder: str | Login
    """The id of a token, or a login at the provider."""
    ends_at: datetime


def end_of(principal: Principal, now: datetime) -> datetime:
    """End of a session that begins now: after LIFETIME, or earlier with the login at the provider."""
    latest = now + LIFETIME
    return latest if principal.expires_at is None else min(latest, principal.expires_at)


def session_for(principal: Principal, key: bytes, ends_at: datetime) -> str:
    """The cookie `holder.expiry.signature`, with the expiry in seconds since 1970."""
    said = f"{_holder(principal)}.{int(ends_at.timestamp())}"
    return f"{said}.{signature(said, key)}"


def read(session: str, key: bytes, now: datetime) -> BrowserSession | None:
    """The content of a session cookie; None: it is expired, or not signed by this cluster."""
    said, _, signed = session.rpartition(".")
    holder, _, expiry = said.partition(".")
    if not hmac.compare_digest(signature(said, key).encode(), signed.encode()):
        return None
    if not (expiry.isascii() and expiry.isdigit()):  # signed with the same key for something else
        return None
    ends_at = datetime.fromtimestamp(int(expiry), UTC)
    if ends_at <= now:
        return None
    if not holder.startswith(_OIDC):
        return BrowserSession(holder, ends_at)
    login = holder.removeprefix(_OIDC)
    name, issuer, groups = json.loads(base64.urlsafe_b64decode(login + "=" * (-len(login) % 4)))
    return BrowserSession(Login(name, issuer, tuple(groups)), ends_at)


def signature(said: str, key: bytes) -> str:
    """Signature of a text, which only a holder of the key can make."""
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()


def _holder(principal: Principal) -> str:
    if principal.source is not PrincipalSource.OIDC:
        return principal.token_id
    login = json.dumps([principal.name, principal.issuer, principal.groups])
    return _OIDC + base64.urlsafe_b64encode(login.encode()).decode().rstrip("=")
