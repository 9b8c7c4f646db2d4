"""The key of a command, by which a request that is sent again is known."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandKey:
    """Made from the header `Idempotency-Key`. Both are hexadecimal digests."""

    hash: str
    """Of the principal and the key that it has chosen: 32 characters."""
    request: str
    """Of method, path, body and `If-Match`: another request with the same key is a mistake."""
