"""Secrets of webhooks. Each is read from its provider at most once in KEPT_S.

A request can be authenticated only with its secret. So before that, an unknown client must not be able to
start a program of the provider with each request, or see the provider's errors. Request threads call this.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

import structlog

from nimbus.domain.errors import NimbusError

KEPT_S = 10.0
"""Also for a missing secret. A replaced secret is valid for this long."""
LONGEST_WAIT_S = 2.0
"""Longest wait for another request that reads from the provider."""

_log = structlog.get_logger(__name__)


class HookSecretError(NimbusError):
    """The secret of a webhook is not available now. The message has no details of the provider."""

    code = "secret_unavailable"
    retryable = True


class HookSecrets:
    """The secrets of webhooks by name.

    Args:
        find: The provider; raises NimbusError.
        elapsed_s: A monotonic clock.
    """

    def __init__(self, find: Callable[[str], str], elapsed_s: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._elapsed_s = elapsed_s
        self._asking = Lock()
        self._kept: dict[str, tuple[float, str | None]] = {}
        """Expiry and secret by name; None: the secret is not available."""

    def __call__(self, name: str) -> str:
        """The secret of a name. Raises HookSecretError if it is not available."""
        if not self._asking.acquire(timeout=LONGEST_WAIT_S):
            raise HookSecretError("the secret of this webhook is being read: send the request again")
        try:
            now_s = self._elapsed_s()
            self._kept = {known: kept for known, kept in self._kept.items() if kept[0] > now_s}
            if name not in self._kept:
                found = self._ask(name)
                self._kept[name] = (self._elapsed_s() + KEPT_S, found)
            secret = self._kept[name][1]
        finally:
            self._asking.release()
        if secret is None:
            raise HookSecretError("the secret of this webhook cannot be had: the scheduler's log says why")
        return secret

    def _ask(self, name: str) -> str | None:
        try:
            return self._find(name)
        except NimbusError as exc:
            _log.warning("hook_secret_unavailable", secret=name, error=str(exc))
            return None
