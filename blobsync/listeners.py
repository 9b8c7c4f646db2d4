"""Calls listeners with new values. Thread-safe; an error of one listener does not stop the others."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from blobsync.log import LazyLog

_log = LazyLog(__name__)
Value = TypeVar("Value")


class Listeners(Generic[Value]):
    """Listeners of one kind of value."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Callable[[Value], None]] = {}

    def subscribe(self, listener: Callable[[Value], None]) -> Callable[[], None]:
        """Add a listener. Returns a function that removes it; safe to repeat."""
        token = object()
        with self._lock:
            self._listeners[token] = listener

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.pop(token, None)

        return unsubscribe

    def tell(self, value: Value) -> None:
        """Call all listeners, on this thread."""
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            try:
                listener(value)
            except Exception:  # noqa: BLE001 - a listener's defect must not stop its caller
                _log.exception("listener_failed")
