"""Decides when the link to a server is dead, by the bytes that arrive and not by the bytes that are sent.

kazoo checks for a missing answer only when it has nothing to send, and a leader always has something to send.
Then only the kernel ends the connection, after a quarter of an hour. If the server process hangs, the kernel
does not even do that, because the server's kernel acknowledges every byte. So this module has the rule of
ZooKeeper's Java client: the link is dead when an answer is due and no byte has arrived for two thirds of the
session timeout. The last third is left to find another server.
"""

from __future__ import annotations

import errno
import math
import select
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from leader.clock import boottime

_FLOOR, _CEILING = timedelta(milliseconds=250), timedelta(seconds=2)
"""Limits of the first wait for a server. A shorter wait would fail on a healthy network when one packet is
late. A longer one does not help: a server that has just started may lose a handshake and answer the next."""


class LinkWatch:
    """Computes how long the server may still be silent. Used by kazoo's connection thread alone.

    Args:
        clock: In seconds; must continue while the machine sleeps.
    """

    def __init__(
        self,
        is_answer_due: Callable[[], bool],
        clock: Callable[[], float] = lambda: boottime().total_seconds(),
    ) -> None:
        self.socket: Any = None
        self._is_answer_due, self._clock = is_answer_due, clock
        self._silence_limit_s = self._answer_limit_s = 0.0
        self._arrived_at = 0.0
        self._asked_at: float | None = None

    def arm(self, sock: Any, session_timeout_s: float) -> None:
        """Watch `sock`, on which a session has just been created or resumed."""
        self.socket = sock
        self._silence_limit_s, self._answer_limit_s = session_timeout_s * 2 / 3, session_timeout_s / 3
        self._arrived_at, self._asked_at = self._clock(), None

    def disarm(self) -> None:
        """Stop watching: there is no session now."""
        self.socket = None

    def asked(self) -> None:
        """Note that a request or a ping is about to be sent."""
        if self._asked_at is None:
            self._asked_at = self._clock()

    def bytes_arrived(self) -> None:
        """Note the time. The content of the bytes does not matter."""
        self._arrived_at = self._clock()

    def left_s(self) -> float | None:
        """Seconds the server may still be silent; 0 or less: the link is dead. None: no answer is due."""
        if not self._is_answer_due():
            self._asked_at = None
            return None
        # After a long sleep, the limit counts from the request, so that the server still has a third of the
        # session timeout to answer.
        asked_at = self._arrived_at if self._asked_at is None else self._asked_at
        until = max(self._arrived_at + self._silence_limit_s, asked_at + self._answer_limit_s)
        return until - self._clock()


class Patience:
    """The limit of the wait for one server to accept a connection and answer the handshake.

    The limit grows while no server answers. Used by kazoo's connection thread alone.

    A dead link is noticed after two thirds of the session timeout. A third is left to find another server,
    and a server that does not answer must not use up all of it. But a server that is only slow must be
    reached in the end, or the client would never connect to a busy ensemble.

    Args:
        configured: The first limit. None: a third of the session timeout, for one round of all servers.
    """

    def __init__(self, *, configured: timedelta | None, servers: int, session_timeout: timedelta) -> None:
        self.session_timeout = session_timeout
        self._configured, self._servers = configured, servers
        self._in_vain = 0

    def limit(self) -> timedelta:
        """The limit for the next attempt."""
        share = min(max(self.session_timeout / (3 * self._servers), _FLOOR), _CEILING)
        first = self._configured or share
        most = max(first, self.session_timeout / self._servers)
        rounds = min(self._in_vain // self._servers, 16)
        return min(first * (1 << rounds), most)

    def timed_out(self) -> None:
        """Note that a server did not answer in time. A refusal does not count: such a server is not slow."""
        self._in_vain += 1

    def succeeded(self) -> None:
        """Note that a server accepted the session."""
        self._in_vain = 0

    def granted(self, session_timeout: timedelta) -> None:
        """Note the session timeout that the server granted."""
        self.session_timeout = session_timeout


def ready(
    readers: Sequence[Any], writers: Sequence[Any], timeout_s: float | None
) -> tuple[list[Any], list[Any]]:
    """Wait like `select.select`, for any number of files. Files with bytes read ahead are ready at once.

    OSError if one of them is closed.
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
    numbers = [number for number, _ in events]
    return [file for number, file in reads if number in numbers], [
        file for number, file in writes if number in numbers
    ]


def _holds_bytes(file: Any) -> bool:
    """True when the object holds received bytes, which the kernel no longer has."""
    pending = getattr(file, "pending", None)
    return pending is not None and bool(pending())


def _number(file: Any) -> int:
    number: int = file if isinstance(file, int) else file.fileno()
    return number
