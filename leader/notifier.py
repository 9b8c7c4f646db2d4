"""Tells whoever wants to know, on a thread of its own, in order, exactly once each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

import structlog

from leader.protocol.terms import Leadership

_log = structlog.get_logger(__name__)


class Electable(Protocol):
    """Whoever wants to lead. Called on the thread `leader-notifier`, one call at a time."""

    def elected(self, leadership: Leadership) -> None:
        """Lead, with this token. Raising means that you cannot: we abdicate."""
        ...

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """Stop what this leadership began. It is over already; return soon."""
        ...


class Notifier:
    """Queue and thread between the election, which must not wait, and foreign code, which may be slow."""

    def __init__(self, electable: Electable, on_failure: Callable[[Leadership, str], None]) -> None:
        self._electable, self._on_failure = electable, on_failure
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="leader-notifier", daemon=True)

    @property
    def here(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def elected(self, leadership: Leadership) -> None:
        """Deliver `elected`, later."""
        self._calls.put(lambda: self._elected(leadership))
        time.sleep(0)  # let it be told before we go on; whoever holds the interpreter keeps it for long else

    def revoked(self, leadership: Leadership, reason: str, done: Callable[[], None]) -> None:
        """Deliver `revoked`, later; call `done` when it has returned or raised."""
        self._calls.put(lambda: self._revoked(leadership, reason, done))

    def close(self, timeout_s: float) -> bool:
        """Deliver what is queued, then end. False if the electable still holds the thread."""
        self._calls.put(None)
        if self.here or not self._thread.is_alive():
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def _elected(self, leadership: Leadership) -> None:
        try:
            self._electable.elected(leadership)
        except BaseException as exc:  # noqa: BLE001 - foreign code: who cannot take office must not keep it
            _log.exception("elected_raised", epoch=leadership.epoch)
            self._on_failure(leadership, f"elected() raised {type(exc).__name__}: {exc}")

    def _revoked(self, leadership: Leadership, reason: str, done: Callable[[], None]) -> None:
        try:
            self._electable.revoked(leadership, reason)
        except BaseException:  # noqa: BLE001 - foreign code: leadership is over whatever it says
            _log.exception("revoked_raised", epoch=leadership.epoch)
        finally:
            done()
