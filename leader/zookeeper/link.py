"""Is the link to the server dead? Judged by what comes in, never by what goes out.

kazoo looks for a missing answer only when it has nothing to send, and a leader always has; then the kernel
decides, after a quarter of an hour. And a server that hangs has a kernel that acknowledges every byte. So we
use the rule of ZooKeeper's Java client: not a byte for two thirds of the session, while an answer is due, and
the link is dead. A third of the session is left to find another server.
"""

from __future__ import annotations

import errno
import math
import select
import time
from collections.abc import Callable, Sequence
from typing import Any


def boottime_s() -> float:
    """Seconds since boot, sleep of the machine included; see `leader.clock`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class LinkWatch:
    """Knows how long the server may stay silent. Used by kazoo's connection thread alone.

    Args:
        is_answer_due: Whether anything sent was not answered yet.
        clock: Seconds; must not stand still.
    """

    def __init__(self, is_answer_due: Callable[[], bool], clock: Callable[[], float] = boottime_s) -> None:
        self.socket: Any = None
        self._is_answer_due, self._clock = is_answer_due, clock
        self._silence_limit_s = self._answer_limit_s = 0.0
        self._heard_at = 0.0
        self._asked_at: float | None = None

    def arm(self, sock: Any, session_timeout_s: float) -> None:
        """Watch `sock`, over which a session has just begun or gone on."""
        self.socket = sock
        self._silence_limit_s, self._answer_limit_s = session_timeout_s * 2 / 3, session_timeout_s / 3
        self._heard_at, self._asked_at = self._clock(), None

    def disarm(self) -> None:
        """There is no session now."""
        self.socket = None

    def asked(self) -> None:
        """A request or a ping is about to be sent."""
        if self._asked_at is None:
            self._asked_at = self._clock()

    def heard(self) -> None:
        """Bytes came in, whatever they say."""
        self._heard_at = self._clock()

    def left_s(self) -> float | None:
        """How long the server may stay silent yet; 0 or less: the link is dead. None: no answer is due."""
        if not self._is_answer_due():
            self._asked_at = None
            return None
        # Whoever asks late, after a long sleep, still gives the server a third of the session.
        asked_at = self._heard_at if self._asked_at is None else self._asked_at
        until = max(self._heard_at + self._silence_limit_s, asked_at + self._answer_limit_s)
        return until - self._clock()


def ready(
    readers: Sequence[Any], writers: Sequence[Any], timeout_s: float | None
) -> tuple[list[Any], list[Any]]:
    """As `select.select`, for any number of files, and aware of what was read ahead.

    Raises:
        OSError: One of them is closed.
    """
    ahead = [file for file in readers if _holds_bytes(file)]
    if ahead:
        return ahead, []
    poll = select.poll()
    try:
        for file in readers:
            poll.register(file, select.POLLIN)
        for file in writers:
            poll.register(file, select.POLLOUT)
    except ValueError as exc:
        raise OSError(errno.EBADF, "the socket is closed") from exc
    events = poll.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000)))
    if not events:
        return [], []
    numbers = [number for number, _ in events]
    return (
        [file for file in readers if _number(file) in numbers],
        [file for file in writers if _number(file) in numbers],
    )


def _holds_bytes(file: Any) -> bool:
    """Bytes inside the object, unknown to the kernel."""
    pending = getattr(file, "pending", None)
    return pending is not None and bool(pending())


def _number(file: Any) -> int:
    number: int = file if isinstance(file, int) else file.fileno()
    return number
