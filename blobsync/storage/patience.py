"""Sockets that bound how long a whole request takes, whatever trickles over them.

A time limit of a socket counts from the last byte, so a server that says one now and then, or `100 Continue`
again and again, holds its client for ever. Here a request has three phases, each with a bound of its own:
sending, at least at a slowest rate; the beginning of the answer, within a fixed time; the rest of it, at a
slowest rate again. One thread at a time uses a socket.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass

_PIECE_BYTES = 16 << 10


@dataclass(frozen=True, slots=True)
class Limits:
    """What is asked of a server.

    Args:
        silence_s: Longest wait for the next byte.
        slowest_bytes_per_s: On average, beyond `silence_s`.
    """

    silence_s: float
    slowest_bytes_per_s: int


class Patience:
    """What is left of it, in one request after another.

    Args:
        limits: Of each.
        clock: Seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self.begin()

    def begin(self) -> None:
        """A request is to be sent. An answer that comes meanwhile has a fixed time."""
        self.body(self._limits.silence_s)
        self.answer(self._limits.silence_s)

    def answer(self, within_s: float) -> None:
        """The request is sent: from now on, its answer has so long to begin."""
        self._answer_until: float | None = self._clock() + within_s

    def body(self, beyond_s: float) -> None:
        """The answer has begun: the rest comes at the slowest rate at least, beyond so long."""
        self._answer_until = None
        self._beyond_s, self._waited_s, self._moved_bytes = beyond_s, 0.0, 0

    def to_send_s(self) -> float:
        """How long the next piece may take to be sent.

        Raises:
            TimeoutError: there is no patience left.
        """
        return self._left(self._at_rate())

    def to_receive_s(self) -> float:
        """How long the next piece may take to come.

        Raises:
            TimeoutError: there is no patience left.
        """
        until = self._answer_until
        return self._left(self._at_rate() if until is None else until - self._clock())

    def moved(self, began: float, size_bytes: int) -> None:
        """A piece went or came. What the caller did before `began` is not the server's fault."""
        self._waited_s += self._clock() - began
        self._moved_bytes += size_bytes

    def now(self) -> float:
        """For `moved`."""
        return self._clock()

    def _at_rate(self) -> float:
        return self._beyond_s + self._moved_bytes / self._limits.slowest_bytes_per_s - self._waited_s

    def _left(self, left_s: float) -> float:
        if left_s <= 0:
            raise TimeoutError("the server is too slow: it says too little, or nothing to the point")
        return min(left_s, self._limits.silence_s)


class PatientSocket(socket.socket):
    """A plain connection.

    Args:
        plain: Connected; not to be used any more.
        patience: Of this connection.
    """

    def __init__(self, plain: socket.socket, patience: Patience) -> None:
        waits = plain.gettimeout()
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self.settimeout(waits)
        self._patience = patience

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0) -> int:  # type: ignore[override]
        """As of sockets."""
        return _receive(
            self, self._patience, lambda: super(PatientSocket, self).recv_into(buffer, nbytes, flags)
        )

    def sendall(self, data: bytes, flags: int = 0) -> None:  # type: ignore[override]
        """As of sockets."""
        _send(self, self._patience, data, lambda piece: super(PatientSocket, self).sendall(piece, flags))


class PatientTlsSocket(ssl.SSLSocket):
    """A connection over TLS; impatient until it was given its `patience`, after the handshake."""

    patience: Patience | None = None

    def recv_into(self, buffer: memoryview, nbytes: int | None = None, flags: int = 0) -> int:  # type: ignore[override]
        """As of sockets."""
        return _receive(
            self, self.patience, lambda: super(PatientTlsSocket, self).recv_into(buffer, nbytes, flags)
        )

    def sendall(self, data: bytes, flags: int = 0) -> None:  # type: ignore[override]
        """As of sockets."""
        _send(self, self.patience, data, lambda piece: super(PatientTlsSocket, self).sendall(piece, flags))


def _receive(sock: socket.socket, patience: Patience | None, receive: Callable[[], int]) -> int:
    if patience is None:
        return receive()
    sock.settimeout(patience.to_receive_s())
    began = patience.now()
    size_bytes = receive()
    patience.moved(began, size_bytes)
    return size_bytes


def _send(
    sock: socket.socket, patience: Patience | None, data: bytes, send: Callable[[memoryview], None]
) -> None:
    if patience is None:
        send(memoryview(data))
        return
    view = memoryview(data).cast("B")
    for start in range(0, len(view), _PIECE_BYTES):
        piece = view[start : start + _PIECE_BYTES]
        sock.settimeout(patience.to_send_s())
        began = patience.now()
        send(piece)
        patience.moved(began, len(piece))
