"""Sessions of browsers: a cookie that names a token, and proves that a scheduler of this cluster made it.

It holds no secret of the token, and is of no use once the token is revoked. Any scheduler can check it.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime, timedelta

LIFETIME = timedelta(hours=12)


def session_for(token_id: str, key: bytes, now: datetime) -> str:
    """`id.expiry.signature`, with the expiry in seconds since 1970."""
    said = f"{token_id}.{int((now + LIFETIME).timestamp())}"
    return f"{said}.{_signature(said, key)}"


def token_of(session: str, key: bytes, now: datetime) -> str | None:
    """The id of the token that a session was begun with; None: it is over, or none of ours."""
    said, _, signature = session.rpartition(".")
    token_id, _, expiry = said.partition(".")
    if not hmac.compare_digest(_signature(said, key).encode(), signature.encode()):
        return None
    return token_id if int(expiry) > now.timestamp() else None


def _signature(said: str, key: bytes) -> str:
    return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()
