"""When to ask a disk that refused to write whether it still does. Pure: time comes in; one thread owns it."""

from __future__ import annotations

import random
from collections.abc import Callable

from blobsync.retry import RetryPolicy


class DiskWatch:
    """Asks while the disk is in trouble, less and less often. One question at a time: a disk may hang.

    Args:
        retry: Waits between questions.
        rng: Uniform in [0, 1).
    """

    def __init__(self, retry: RetryPolicy, rng: Callable[[], float] = random.random) -> None:
        self._retry = retry
        self._rng = rng
        self._questions = 0
        self._asking = False
        self._due_s: float | None = None

    def seen(self, ok: bool, now_s: float) -> None:
        """How the disk does now, as far as is known."""
        if ok:
            self._questions, self._due_s = 0, None
        elif self._due_s is None and not self._asking:
            self._plan(now_s)

    def next_due_s(self) -> float | None:
        """When to ask; None: not as far as is known now."""
        return None if self._asking else self._due_s

    def is_due(self, now_s: float) -> bool:
        """Whether to ask now."""
        due_s = self.next_due_s()
        return due_s is not None and due_s <= now_s

    def asking(self) -> None:
        """It is asked now."""
        self._asking = True

    def asked(self, now_s: float) -> None:
        """It was asked, or need not be this time. What came of it is told by `seen`."""
        self._asking = False
        self._plan(now_s)

    def _plan(self, now_s: float) -> None:
        self._questions += 1
        self._due_s = now_s + self._retry.wait_s(self._questions, self._rng)
