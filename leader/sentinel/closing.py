"""Ends a session whose process is dead: attaches to it and closes it, at any server that lets us.

Must be called for dead processes only. Attaching takes a session from its owner.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from leader.sentinel import wire
from leader.sentinel.connecting import Address, Tls, first_connection, resolve, tls_context
from leader.sentinel.hosts import read_hosts
from leader.sentinel.messages import Handoff

if TYPE_CHECKING:
    import ssl

CLOSED, OVER, GAVE_UP = "closed", "over", "gave_up"
"""How it ended: we closed it; it was over already; no server let us before it was over anyway."""

CONNECT_LIMIT_S = 1.0
PAUSE_S = 0.1
FIRST_ANSWER_S, LAST_ANSWER_S = 0.25, 2.0
"""A server that hangs accepts connections too, so the next is asked soon; each round has twice the patience.
An answer that comes too late costs one more question: the next one is that the session is over."""
SLACK_S = 1.0
"""A server ends sessions on its ticks, a little after their time."""


class Attempt(Protocol):
    """One try to end a session."""

    def __call__(self, handoff: Handoff, answer_limit_s: float) -> str | None:
        """CLOSED or OVER; None: nobody could say. A close whose answer was lost is OVER the next time."""
        ...


def end_session(
    handoff: Handoff, attempt: Attempt, clock: Callable[[], float], sleep: Callable[[float], None]
) -> str:
    """Try until it is over, at most for as long as the session can live without us."""
    timeout_s = handoff.timeout_ms / 1000
    until = clock() + timeout_s + SLACK_S
    answer_limit_s = FIRST_ANSWER_S
    while True:
        outcome = attempt(handoff, answer_limit_s)
        if outcome is not None:
            return outcome
        if clock() + PAUSE_S >= until:
            return GAVE_UP
        sleep(PAUSE_S)
        answer_limit_s = min(2 * answer_limit_s, LAST_ANSWER_S)


class Ensemble:
    """The servers, as an `Attempt`.

    Args:
        hosts: Connection string.
        tls: Files, if the servers want TLS.
        clock: Seconds; must not stand still.
    """

    def __init__(self, hosts: str, tls: Tls | None, clock: Callable[[], float]) -> None:
        self._hosts = read_hosts(hosts)
        self._tls: ssl.SSLContext | None = None if tls is None else tls_context(tls)
        self._clock = clock
        self._known: list[tuple[str, Address]] = []

    def look_up(self) -> None:
        """Resolve the names now, so that it need not be done in a hurry."""
        self._known = [(host, address) for host, port in self._hosts for address in resolve(host, port)]

    def __call__(self, handoff: Handoff, answer_limit_s: float) -> str | None:
        """Ask each server that accepts a connection, the quickest first."""
        if not self._known:
            self.look_up()
        left = list(self._known)
        while left:
            found = first_connection([address for _, address in left], CONNECT_LIMIT_S, self._clock)
            if found is None:
                break
            index, sock = found
            host, _ = left.pop(index)
            try:
                with self._wrapped(sock, host, answer_limit_s) as connection:
                    return _close_over(connection, handoff)
            except (OSError, wire.WireError):  # not serving now, or gone in the middle: another may know
                continue
        self._known = []  # the names may stand for other machines by now
        return None

    def _wrapped(self, sock: socket.socket, host: str, limit_s: float) -> socket.socket:
        sock.settimeout(limit_s)
        if self._tls is None:
            return sock
        try:
            return self._tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise


def _close_over(connection: socket.socket, handoff: Handoff) -> str:
    connection.sendall(wire.attach_request(*handoff))
    if not wire.is_attached(_read_frame(connection), handoff.session_id):
        return OVER
    connection.sendall(wire.close_request())
    while not wire.is_closed(_read_frame(connection)):
        pass
    return CLOSED


def _read_frame(connection: socket.socket) -> bytes:
    return _read(connection, wire.frame_length(_read(connection, wire.LENGTH_BYTES)))


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the server hung up")
        data += part
    return data
