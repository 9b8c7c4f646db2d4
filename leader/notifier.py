"""Tells the electable, in order, exactly once each, on a thread that may be held up by it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Protocol

import structlog

from leader.errand import Afterwards, Errand, in_words
from leader.protocol.terms import Leadership

_log = structlog.get_logger(__name__)


class Electable(Protocol):
    """Whoever wants to lead. Told one thing at a time, in order, each on any thread `leader-election-N`.

    What belongs to one thread (a connection of SQLite, an event loop) must be kept on one of your own.
    """

    def elected(self, leadership: Leadership) -> None:
        """Lead, with this token. Raising means that you cannot: we abdicate."""
        ...

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """Stop what this leadership began. It is over already; return soon."""
        ...


class Notifier:
    """Queue between the election, which must not wait, and foreign code, which may be slow.

    Args:
        electable: Whom to tell.
        on_failure: Told of a leadership that the electable could not take, and why.
        send: Has an errand done, soon, on some thread.
    """

    def __init__(
        self,
        electable: Electable,
        on_failure: Callable[[Leadership, str], None],
        send: Callable[[Errand], None],
    ) -> None:
        self._electable, self._on_failure, self._send = electable, on_failure, send
        self._calls: SimpleQueue[Errand] = SimpleQueue()
        self._turn = threading.Lock()  # held by who calls the electable, for as long as that takes

    @property
    def busy(self) -> bool:
        """Whether the electable is being told, or about to be."""
        return self._turn.locked() or not self._calls.empty()

    def elected(self, leadership: Leadership) -> None:
        """Deliver `elected`, later."""
        self._calls.put(lambda: self._elected(leadership))
        self._send(self._next)

    def revoked(self, leadership: Leadership, reason: str, done: Callable[[], None]) -> None:
        """Deliver `revoked`, later; `done` is called when it has returned or raised."""
        self._calls.put(lambda: self._revoked(leadership, reason, done))
        self._send(self._next)

    def _next(self) -> Afterwards | None:
        """Deliver one call, unless another thread is at it: that one looks again when it is done."""
        if not self._turn.acquire(blocking=False):
            return None
        try:
            afterwards = self._calls.get_nowait()()
        except Empty:
            afterwards = None
        finally:
            self._turn.release()
            if not self._calls.empty():
                self._send(self._next)
        return afterwards

    def _elected(self, leadership: Leadership) -> Afterwards | None:
        try:
            self._electable.elected(leadership)
        except BaseException as exc:  # noqa: BLE001 - foreign code: who cannot take office must not keep it
            reason = f"elected() raised {in_words(exc)}"
            _log.exception("elected_raised", epoch=leadership.epoch)
            return lambda: self._on_failure(leadership, reason)
        return None

    def _revoked(self, leadership: Leadership, reason: str, done: Afterwards) -> Afterwards:
        try:
            self._electable.revoked(leadership, reason)
        except BaseException:  # noqa: BLE001 - foreign code: leadership is over whatever it says
            _log.exception("revoked_raised", epoch=leadership.epoch)
        return done
