"""The idempotency key of a command, which identifies a repeated request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandKey:
    """Derived from the header `Idempotency-Key`. Both fields are hexadecimal digests."""

    hash: str
    """Digest of the principal and the key that it chose: 32 characters."""
    request: str
    """Digest of method, path, body and `If-Match`: a different request with the same key is an error."""
