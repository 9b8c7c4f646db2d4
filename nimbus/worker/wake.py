"""A wake-up signal for a poll loop, which any thread, callback or signal handler can send."""

from __future__ import annotations

import io
import os
import select
import sys
from contextlib import suppress

_ONE = (1).to_bytes(8, sys.byteorder)


class Wake:
    """An eventfd. `ring` never blocks, so it may be called on kazoo's threads and in signal handlers."""

    def __init__(self) -> None:
        # A file object instead of a descriptor: a late `ring` after `close` must not write into another file.
        self._file = io.FileIO(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "r+")

    def fileno(self) -> int:
        """For poll."""
        return self._file.fileno()

    def ring(self) -> None:
        """Wake the loop, now or at its next wait."""
        with suppress(ValueError, OSError):  # closed, or being closed
            self._file.write(_ONE)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until it rings, at most `timeout_s`; return True if it rang."""
        poll = select.poll()
        poll.register(self._file, select.POLLIN)
        rang = bool(poll.poll(None if timeout_s is None else max(0, int(timeout_s * 1000))))
        self.clear()
        return rang

    def clear(self) -> None:
        """Forget earlier rings."""
        self._file.read(8)

    def close(self) -> None:
        """Close it."""
        self._file.close()
