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
import socket
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
    """As `select.select`, for any number of files, and aware of what TLS has read ahead.

    Raises:
        OSError: One of them is closed.
    """
    if any(_has_read_ahead(reader) for reader in readers):
        timeout_s = 0
    poll = select.poll()
    for files, event in ((readers, select.POLLIN), (writers, select.POLLOUT)):
        for file in files:
            poll.register(_number(file), event)
    events = dict(poll.poll(None if timeout_s is None else max(0, math.ceil(timeout_s * 1000))))
    return (
        [reader for reader in readers if _has_read_ahead(reader) or events.get(_number(reader))],
        [writer for writer in writers if events.get(_number(writer))],
    )


def _has_read_ahead(reader: Any) -> bool:
    """Whether decrypted bytes wait inside the object, of which the kernel knows nothing."""
    pending = getattr(reader, "pending", None)
    return pending is not None and pending() > 0


def _number(file: Any) -> int:
    number: int = file if isinstance(file, int) else file.fileno()
    if number < 0:
        raise OSError(errno.EBADF, "the socket is closed")
    return number


def cut(sock: Any) -> None:
    """Shut a connection down for good; whoever waits on it notices at once. Safe if it is closed."""
    try:
        # Not `sock.shutdown`: that of a TLS socket drops the encryption under the reader's feet.
        socket.socket.shutdown(sock, socket.SHUT_RDWR)
    except OSError:
        return
