"""Tokens, `nbs_<id>_<secret>`: creates, parses and compares them.

The secret has 32 random bytes, so a single SHA-256 protects it: it cannot be guessed.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import unquote

from nimbus.domain.cluster.access import Token

TOKEN_ID = r"[0-9a-f]{12}"  # noqa: S105 - a pattern
_FORM = re.compile(rf"nbs_({TOKEN_ID})_([A-Za-z0-9_-]{{43}})")
_URL_NAMES = re.compile(r"(?:^|[?&;])(?:access_token|token|api_key)=", re.IGNORECASE)


class NewToken(NamedTuple):
    """A new token: its text, which is shown once, and the digest that is kept."""

    id: str
    text: str
    sha256: str


def new_token() -> NewToken:
    """Make a token."""
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return NewToken(token_id, f"nbs_{token_id}_{secret}", digest_of(secret))


def digest_of(secret: str) -> str:
    """The digest that is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def id_in(text: str) -> str | None:
    """The id in a token's text; None: the text does not have the form of a token."""
    match = _FORM.fullmatch(text)
    return None if match is None else match[1]


def find(text: str, known: Mapping[str, Token]) -> Token | None:
    """The token with this text, which may be expired; None: there is none."""
    match = _FORM.fullmatch(text)
    token = None if match is None else known.get(match[1])
    if match is None or token is None or not hmac.compare_digest(digest_of(match[2]), token.sha256):
        return None
    return token


def is_in_url(path: str, query: str) -> bool:
    """True when a URL contains a token, which proxies, browser histories and logs would keep."""
    return _FORM.search(unquote(f"{path}?{query}")) is not None or _URL_NAMES.search(f"?{query}") is not None


def expired(token: Token, now: datetime) -> str:
    """The message to the owner of an expired token; empty: it is not expired."""
    if not token.is_expired(now):
        return ""
    return f"token {token.id} has expired: make another one (`nimbus token create`)."
