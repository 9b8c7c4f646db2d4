"""Calls a provider of secrets from outside with a deadline. Any thread may call it."""

from __future__ import annotations

import threading
from datetime import timedelta
from queue import Empty, SimpleQueue

from nimbus.worker.secrets import Provider, SecretError

MOST_AT_ONCE = 8
"""Most calls that have not returned. A call that hangs is abandoned, and counts until it returns."""


class PlugIn:
    """See `nimbus.worker.secrets.Provider`. Threads `worker-secret`, one for each call."""

    def __init__(self, provider: Provider, timeout: timedelta) -> None:
        self._provider, self._timeout_s = provider, timeout.total_seconds()
        self._free = threading.Semaphore(MOST_AT_ONCE)

    def __call__(self, name: str) -> str:
        """Call the provider. Raises its own errors, and SecretError if it does not return in time."""
        if not self._free.acquire(timeout=self._timeout_s):
            raise SecretError(f"secret {name} cannot be had: {MOST_AT_ONCE} calls of its provider hang")
        answer: SimpleQueue[str | Exception] = SimpleQueue()
        asks = threading.Thread(target=self._ask, args=(name, answer), name="worker-secret", daemon=True)
        asks.start()
        try:
            found = answer.get(timeout=self._timeout_s)
        except Empty:
            why = f"its provider takes longer than {self._timeout_s:g} s"
            raise SecretError(f"secret {name} cannot be had: {why}") from None
        if isinstance(found, Exception):
            raise found
        return found

    def _ask(self, name: str, answer: SimpleQueue[str | Exception]) -> None:
        try:
            answer.put(self._provider(name))
        except Exception as exc:  # noqa: BLE001 - top of the thread; the caller raises it
            answer.put(exc)
        finally:
            self._free.release()
