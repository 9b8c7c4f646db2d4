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
from datetime import timedelta
from typing import Any

_FLOOR, _CEILING = timedelta(milliseconds=250), timedelta(seconds=2)
"""Less would fail on a healthy network, for a single packet that came late. More is of no use at first: a
server that has just been started may lose a handshake, and answers the next one."""


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


class Patience:
    """How long to wait for one server to accept a connection and answer the handshake.

    Grows while nobody answers. Used by kazoo's connection thread alone.

    A dead link is noticed after two thirds of the session, so a third is left to find another server, and one
    that swallows everything must not eat it up. But servers that are merely slow must be reached in the end,
    or a busy ensemble would be tried for ever.

    Args:
        configured: The first limit, if the user wants another than a third of the session for a whole round.
        servers: How many there are.
        session_timeout: Asked for; `granted` tells what came of it.
    """

    def __init__(self, *, configured: timedelta | None, servers: int, session_timeout: timedelta) -> None:
        self.session_timeout = session_timeout
        self._configured, self._servers = configured, servers
        self._in_vain = 0

    def limit(self) -> timedelta:
        """For the next try."""
        share = min(max(self.session_timeout / (3 * self._servers), _FLOOR), _CEILING)
        first = self._configured or share
        most = max(first, self.session_timeout / self._servers)
        rounds = min(self._in_vain // self._servers, 16)
        return min(first * (1 << rounds), most)

    def timed_out(self) -> None:
        """A server has not answered in time. To be refused at once says nothing about the time it needs."""
        self._in_vain += 1

    def succeeded(self) -> None:
        """A server let us in."""
        self._in_vain = 0

    def granted(self, session_timeout: timedelta) -> None:
        """The server has said how long a session lasts."""
        self.session_timeout = session_timeout


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
    reads = [(_number(file), file) for file in readers]
    writes = [(_number(file), file) for file in writers]
    poll = select.poll()
    try:
        for number, _ in reads:
            poll.register(number, select.POLLIN)
        for number, _ in writes:
            poll.register(number, select.POLLOUT)
    except ValueError as exc:
        raise OSError(errno.EBADF, "the socket is closed") from exc
    events = poll.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000)))
    if not events:
        return [], []
    found = [number for number, _ in events]
    return [file for number, file in reads if number in found], [
        file for number, file in writes if number in found
    ]


def _holds_bytes(file: Any) -> bool:
    """Bytes inside the object, unknown to the kernel."""
    pending = getattr(file, "pending", None)
    return pending is not None and bool(pending())


def _number(file: Any) -> int:
    number: int = file if isinstance(file, int) else file.fileno()
    return number
