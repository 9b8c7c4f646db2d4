"""Sessions of browsers: a cookie that says who logged in. Only a scheduler of this cluster can make it.

It names a token, which must still be there, or whom an identity provider named, with the groups; it holds no
secret of either. Any scheduler can check it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from nimbus.domain.access import Principal, PrincipalSource

LIFETIME = timedelta(hours=12)
MOST_BYTES = 3800
"""Of a cookie; browsers drop one above 4,096 with its name."""
_OIDC = "oidc-"
"""Begins what no token's id begins with."""


class Login(NamedTuple):
    """Whom an identity provider named."""

    name: str
    issuer: str
    groups: tuple[str, ...]


class Session(NamedTuple):
    """What a session says that a scheduler made."""

    holder: str | Login
    """The id of a token, or who logged in."""
    ends_at: datetime


def end_of(principal: Principal, now: datetime) -> datetime:
    """When a session that begins now ends: with the login of an identity provider, or sooner."""
    latest = now + LIFETIME
    return latest if principal.expires_at is None else min(latest, principal.expires_at)


def session_for(principal: Principal, key: bytes, ends_at: datetime) -> str:
    """`holder.expiry.signature`, with the expiry in seconds since 1970."""
    said = f"{_holder(principal)}.{int(ends_at.timestamp())}"
    return f"{said}.{signature(said, key)}"


def read(session: str, key: bytes, now: datetime) -> Session | None:
    """What a session says; None: it is over, or none of ours."""
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
        return Session(holder, ends_at)
    login = holder.removeprefix(_OIDC)
    name, issuer, groups = json.loads(base64.urlsafe_b64decode(login + "=" * (-len(login) % 4)))
    return Session(Login(name, issuer, tuple(groups)), ends_at)


def signature(said: str, key: bytes) -> str:
    """Proves that a text comes from who has the key."""
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()


def _holder(principal: Principal) -> str:
    if principal.source is not PrincipalSource.OIDC:
        return principal.token_id
    login = json.dumps([principal.name, principal.issuer, principal.groups])
    return _OIDC + base64.urlsafe_b64encode(login.encode()).decode().rstrip("=")
