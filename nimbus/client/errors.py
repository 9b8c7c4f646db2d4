"""Errors of the client. Each has a `code`, the exit code of a command, and `retryable`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nimbus.domain.errors import NimbusError

_CERTIFICATE = {
    "has expired": "Renew the certificate of that scheduler (`api.tls`), or correct this host's clock.",
    "not yet valid": "Correct the clock of this host, or the certificate of that scheduler (`api.tls`).",
    "mismatch": "Use a name or address for which the certificate is, or renew it with this one.",
}
"""Advice by OpenSSL's reason."""
_UNKNOWN_AUTHORITY = "Name a file with the authority of its certificate in SSL_CERT_FILE."


class ClientError(NimbusError):
    """The root of what the client raises."""

    code = "client"


class SetupError(ClientError):
    """An address or a token that the client was given cannot be used. Nothing was sent."""

    exit_code = 2

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class UnreachableError(ClientError):
    """No scheduler gave a usable answer within the client's patience. `tried`: the reason by URL."""

    code, exit_code, retryable = "unreachable", 6, True

    def __init__(self, tried: Mapping[str, str], retry_after_s: float = 0.0) -> None:
        lines = "".join(f"\n  {server}: {why}" for server, why in tried.items())
        advice = "Is the cluster up, and is --server (or NIMBUS_SERVER) right?"
        if any("CERTIFICATE_VERIFY_FAILED" in why for why in tried.values()):
            advice = next((fix for text, fix in _CERTIFICATE.items() if text in lines), _UNKNOWN_AUTHORITY)
        elif any("disconnected without" in why and url.startswith("http:") for url, why in tried.items()):
            advice = "If it serves TLS, its URL begins with https."
        super().__init__(f"no scheduler answered:{lines}\n{advice}")
        self.tried, self.retry_after_s = dict(tried), retry_after_s


class WaitTimeoutError(ClientError):
    """What was waited for did not happen in time. It goes on."""

    code, exit_code = "wait_timeout", 5


class ProblemError(ClientError):
    """A scheduler or the leader refused a request. Its message says why, and what to do.

    Args:
        status: HTTP status.
        code: Stable, such as `unknown_pipeline`: see docs/api.md.
        detail: For people.
        errors: The places of bad input, as of the API: `{place, message, pointer?}`.
        retry_after_s: The answer's `Retry-After`; 0: it had none.
    """

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: Sequence[Mapping[str, Any]] = (),
        retry_after_s: float = 0.0,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.errors, self.retry_after_s = status, code, tuple(errors), retry_after_s
        if type(self) is ProblemError and 400 <= status < 500:
            self.exit_code = 2


class DeniedError(ProblemError):
    """The caller is not authenticated (401), or does not have the permission (403)."""

    exit_code = 7


class NotFoundError(ProblemError):
    """There is no such object (404)."""

    exit_code = 3


class ConflictError(ProblemError):
    """The present state does not allow it (409), or `If-Match` did not match (412). Nothing was done."""

    exit_code = 4


class BusyError(ProblemError):
    """Too many requests (429), still after the client's patience."""

    retryable, exit_code = True, 6


KINDS: Mapping[int, type[ProblemError]] = {
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    409: ConflictError,
    412: ConflictError,
    429: BusyError,
}
"""By status; any other is a `ProblemError`."""
