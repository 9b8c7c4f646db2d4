"""Which process of a host scrubs a store, and when: one at a time, and not anew after each restart."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


class ScrubTurn:
    """A file in the store that says when the last whole round began, locked while one is under way.

    A store without such a file is new: all in it was verified lately.

    Args:
        path: Of the file.
        interval_s: Between the beginnings of two rounds.
        now_s: Seconds of a clock that survives restarts. One that was set back costs an early round.
    """

    def __init__(self, path: Path, interval_s: float, now_s: Callable[[], float] = time.time) -> None:
        self._path = path
        self._interval_s = interval_s
        self._now_s = now_s
        self._made_s = now_s()
        with contextlib.suppress(OSError), self._open(os.O_EXCL) as fd:
            self._note(fd, self._made_s)

    def due_in_s(self) -> float:
        """Seconds until the next round is due; not above 0: it is."""
        try:
            began_s = float(self._path.read_text())
        except (OSError, ValueError):  # it could not be written, or just is
            began_s = self._made_s
        since_s = self._now_s() - began_s
        return self._interval_s - since_s if since_s >= 0 else 0.0

    @contextmanager
    def taken(self) -> Iterator[bool]:
        """Whether it is our turn: a round is due, and nobody else is at it. One that ends well is noted.

        Raises:
            OSError: the file cannot be opened.
        """
        with self._open(0) as fd:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if self.due_in_s() > 0:  # another was faster
                yield False
                return
            began_s = self._now_s()
            yield True
            self._made_s = began_s
            self._note(fd, began_s)

    @contextmanager
    def _open(self, more: int) -> Iterator[int]:
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | more, 0o644)
        try:
            yield fd
        finally:
            os.close(fd)

    @staticmethod
    def _note(fd: int, began_s: float) -> None:
        with contextlib.suppress(OSError):  # a full disk: then the next process scrubs early
            os.pwrite(fd, f"{began_s:020.3f}".encode(), 0)
