"""Secrets of webhooks, each asked of its provider at most once in KEPT_S.

A request is known to be signed only when its secret is there. So strangers must neither start a program of
the provider with each request, nor be told what is wrong with it. Threads of the API's requests ask.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock

import structlog

from nimbus.domain.errors import NimbusError

KEPT_S = 10.0
"""Also that there is none. A secret that is replaced counts for so long."""
LONGEST_WAIT_S = 2.0
"""For another request that asks the provider."""

_log = structlog.get_logger(__name__)


class HookSecretError(NimbusError):
    """The secret of a webhook is not there now. The text says nothing of the provider."""

    code = "secret_unavailable"
    retryable = True


class HookSecrets:
    """The secrets of webhooks by name.

    Args:
        find: The provider; raises NimbusError.
        elapsed_s: A clock that never goes back.
    """

    def __init__(self, find: Callable[[str], str], elapsed_s: Callable[[], float] = time.monotonic) -> None:
        self._find = find
        self._elapsed_s = elapsed_s
        self._asking = Lock()
        self._kept: dict[str, tuple[float, str | None]] = {}
        """Until when, and the secret; None: it could not be had."""

    def __call__(self, name: str) -> str:
        """The secret of a name. HookSecretError: it cannot be had."""
        if not self._asking.acquire(timeout=LONGEST_WAIT_S):
            raise HookSecretError("the secret of this webhook is being asked for: send the request again")
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
