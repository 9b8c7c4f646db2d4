"""A bell that any thread, callback or signal handler can ring and that a poll loop hears."""

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
        # A file object and not a bare descriptor: a late ring after `close` must not write into a stranger's.
        self._file = io.FileIO(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC), "r+")

    def fileno(self) -> int:
        """For poll."""
        return self._file.fileno()

    def ring(self) -> None:
        """Wake the loop, now or at its next wait."""
        with suppress(ValueError, OSError):  # closed, or being closed: nobody listens any more
            self._file.write(_ONE)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until it rings, at most `timeout_s`. Whether it rang."""
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
