"""Tokens, `nbs_<id>_<secret>`: made, taken apart, compared.

The secret has 32 random bytes, so one SHA-256 is enough to keep it by: there is nothing to guess.
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

from nimbus.domain.access import Token

TOKEN_ID = r"[0-9a-f]{12}"  # noqa: S105 - a pattern
_FORM = re.compile(rf"nbs_({TOKEN_ID})_([A-Za-z0-9_-]{{43}})")
_URL_NAMES = re.compile(r"(?:^|[?&;])(?:access_token|token|api_key)=", re.IGNORECASE)


class NewToken(NamedTuple):
    """A token as it is shown once, and what is kept of it."""

    id: str
    text: str
    sha256: str


def new_token() -> NewToken:
    """Make a token."""
    token_id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
    return NewToken(token_id, f"nbs_{token_id}_{secret}", digest_of(secret))


def digest_of(secret: str) -> str:
    """What is kept of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def id_in(text: str) -> str | None:
    """The id in a token's text; None: it has not the form of a token."""
    match = _FORM.fullmatch(text)
    return None if match is None else match[1]


def find(text: str, known: Mapping[str, Token]) -> Token | None:
    """The token with this text, perhaps expired; None: there is none."""
    match = _FORM.fullmatch(text)
    token = None if match is None else known.get(match[1])
    if match is None or token is None or not hmac.compare_digest(digest_of(match[2]), token.sha256):
        return None
    return token


def is_in_url(path: str, query: str) -> bool:
    """Whether a request has a token where proxies, histories and logs keep it."""
    return _FORM.search(unquote(f"{path}?{query}")) is not None or _URL_NAMES.search(f"?{query}") is not None


def expired(token: Token, now: datetime) -> str:
    """What to say to the owner of an expired token; empty: it is not."""
    if not token.is_expired(now):
        return ""
    return f"token {token.id} has expired: make another one (`nimbus token create`)."
