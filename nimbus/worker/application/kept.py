"""Keeps figures of a cluster for a while: each driver that waits there asks for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_KEPT_S = 10.0
_NOTHING_KEPT_S = 60.0
"""Servers that do not answer take seconds for each question."""


class Kept(Generic[T]):
    """What `read` returns: at most ten seconds old, or a minute if it is empty. Any thread."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._until_s = float("-inf")
        self._value: T

    def value(self) -> T:
        """Read it, unless it was read lately. Raises what `read` raises, and asks again then."""
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._value = self._read()
                self._until_s = time.monotonic() + (_KEPT_S if self._value else _NOTHING_KEPT_S)
            return self._value
