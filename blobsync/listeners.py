"""Who is told of changes. Thread-safe; a listener's defect harms nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from blobsync.log import Log

_log = Log(__name__)
Value = TypeVar("Value")


class Listeners(Generic[Value]):
    """Told of values, on the thread of whoever tells."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[object, Callable[[Value], None]] = {}

    def subscribe(self, listener: Callable[[Value], None]) -> Callable[[], None]:
        """Add one. Gives what removes it again; safe to repeat."""
        token = object()
        with self._lock:
            self._listeners[token] = listener

        def unsubscribe() -> None:
            with self._lock:
                self._listeners.pop(token, None)

        return unsubscribe

    def tell(self, value: Value) -> None:
        """Tell all."""
        with self._lock:
            listeners = list(self._listeners.values())
        for listener in listeners:
            try:
                listener(value)
            except Exception:  # noqa: BLE001 - a listener's defect must not stop what tells it
                _log.exception("listener_failed")
