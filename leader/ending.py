"""An end that several may ask for: the first brings it about, the others wait until it has come."""

from __future__ import annotations

import threading
from datetime import timedelta


class Ending:
    """See the module. Any thread may use it.

    `begun` may be read without a lock: once true, it stays so.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held for a few instructions
        self._over = threading.Event()
        self.begun = False

    def begin(self) -> bool:
        """Whether the caller is the first, who must call `over` at last, whatever happens."""
        with self._lock:
            first, self.begun = not self.begun, True
        return first

    def over(self) -> None:
        """It has come."""
        self._over.set()

    def wait(self, timeout: timedelta) -> bool:
        """Wait for it. False if it has not come in time."""
        return self._over.wait(timeout.total_seconds())
