"""Messages to a process that may not read them now. Loop thread."""

from __future__ import annotations

import errno
import socket
from collections import deque

from nimbus.worker.loop import Loop

_FULL_PAUSE_S = 0.05
_NOBODY_READS = frozenset({errno.EPIPE, errno.ECONNRESET, errno.EBADF})
"""Errors if the reader has ended, or we have closed the connection."""


class Outbox:
    """Sends in order, and never blocks."""

    def __init__(self, connection: socket.socket, loop: Loop) -> None:
        """`connection` must be non-blocking."""
        self._connection, self._loop = connection, loop
        self._waiting: deque[bytes] = deque()

    def send(self, message: bytes) -> None:
        """Send now, or when the socket is writable. Does nothing if the reader has ended."""
        self._waiting.append(message)
        if len(self._waiting) == 1:
            self._send()

    def _send(self) -> None:
        while self._waiting:
            try:
                self._connection.send(self._waiting[0])
            except OSError as exc:
                if exc.errno in _NOBODY_READS:
                    self._waiting.clear()
                    return
                self._loop.after(_FULL_PAUSE_S, self._send)
                return
            self._waiting.popleft()
