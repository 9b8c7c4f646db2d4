"""Caches figures of a cluster, because each waiting driver reads them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_KEPT_S = 10.0
_NOTHING_KEPT_S = 60.0
"""Longer for empty results, because a server that does not answer costs seconds."""


class Kept(Generic[T]):
    """A cached result of `read`, at most ten seconds old, or a minute if it is empty. Any thread."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._until_s = float("-inf")
        self._value: T

    def value(self) -> T:
        """Return the result, read again if it is old. Raises the errors of `read`, which are not cached."""
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._value = self._read()
                self._until_s = time.monotonic() + (_KEPT_S if self._value else _NOTHING_KEPT_S)
            return self._value
