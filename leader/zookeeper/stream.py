"""A connection that takes from the kernel what is there in one go.

kazoo reads each answer in two pieces and waits before each; a hand-over is several answers, and the waits are
what takes the time. Used by kazoo's connection thread alone, but for `cut`.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any

_CHUNK_BYTES = 8192
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Stream:
    """Stands in for the connected socket, with or without TLS, that kazoo was promised."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._taken = bytearray()  # received, and not asked for yet

    def fileno(self) -> int:
        """Of the socket; -1 once closed."""
        return self._socket.fileno()

    def getpeername(self) -> Any:
        """As of a socket."""
        return self._socket.getpeername()

    def setblocking(self, blocking: bool) -> None:
        """As of a socket."""
        self._socket.setblocking(blocking)

    def pending(self) -> int:
        """How many bytes can be had of which the kernel knows nothing."""
        inside_tls = self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0
        return len(self._taken) + inside_tls

    def take(self, size: int) -> bytes | None:
        """All of so many bytes, if they are here; None: not yet, or never. Does not wait.

        Raises:
            OSError: The connection broke.
        """
        if len(self._taken) < size:
            try:
                self._taken += self._socket.recv(_CHUNK_BYTES)
            except _NOT_NOW:
                return None
            if len(self._taken) < size:
                return None
        return self._first(size)

    def recv(self, size: int) -> bytes:
        """As of a socket: at most so many bytes; none at its end."""
        return self._first(size) if self._taken else self._socket.recv(size)

    def send(self, data: Any) -> int:
        """As of a socket."""
        return self._socket.send(data)

    def sendall(self, data: Any) -> None:
        """As of a socket. For what kazoo asks outside a session: its four-letter commands."""
        self._socket.sendall(data)

    def close(self) -> None:
        """As of a socket."""
        self._socket.close()

    def cut(self) -> None:
        """End it for good; whoever waits on it notices at once. Any thread; safe if it is closed."""
        try:
            # Not `shutdown` of a TLS socket: that drops the encryption under the reader's feet.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            return

    def _first(self, size: int) -> bytes:
        part = bytes(self._taken[:size])
        del self._taken[:size]
        return part
