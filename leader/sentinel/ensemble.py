"""Asks the servers of an ensemble to close a session, in the order in which they accept connections.

`Ensemble` connects to all servers at once: a server whose machine is down does not answer, and connecting to
one after the other would wait for it.

Use it only for sessions of dead processes: attaching to a session takes it from its owner.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from leader.sentinel import wire
from leader.sentinel.wire import Handoff

if TYPE_CHECKING:
    import ssl

CLOSED, OVER = "closed", "over"
"""How a session ended: the sentinel closed it, or it was over already."""

CONNECT_LIMIT_S = 1.0

Address = tuple[int, tuple[str, int]]
"""Address family, and the argument of `connect`."""


class Tls(NamedTuple):
    """Files for TLS, as kazoo takes them. `-` means none."""

    ca: str
    certificate: str = "-"
    key: str = "-"
    verify: str = "verify"
    """`verify`; `no-hostname`: accept any name on the certificate; `none`: accept any certificate."""


def _tls_context(tls: Tls) -> ssl.SSLContext:
    """Read the files at the start, while the process lives.

    OSError if one is missing or is no certificate.
    """
    import ssl

    context = ssl.create_default_context(cafile=None if tls.ca == "-" else tls.ca)
    if tls.verify != "verify":
        context.check_hostname = False
    if tls.verify == "none":
        context.verify_mode = ssl.CERT_NONE
    if tls.certificate != "-":
        context.load_cert_chain(tls.certificate, None if tls.key == "-" else tls.key)
    return context


class Ensemble:
    """See the module.

    Args:
        hosts: `host:port,host:port`, each with its port; an IPv6 address without brackets.

    Raises:
        ValueError: A port is no number.
    """

    def __init__(self, hosts: str, tls: Tls | None, clock: Callable[[], float]) -> None:
        servers = [server.rpartition(":") for server in hosts.split(",")]
        self._hosts = [(host, int(port)) for host, _, port in servers]
        self._tls: ssl.SSLContext | None = None if tls is None else _tls_context(tls)
        self._clock = clock
        self._known: list[tuple[str, Address]] = []

    def resolve(self) -> None:
        """Resolve the host names now, so that this takes no time when the process is dead."""
        self._known = [(host, address) for host, port in self._hosts for address in _resolve(host, port)]

    def close(self, handoff: Handoff, answer_limit_s: float) -> str | None:
        """Try to close the session at each server that accepts a connection.

        Returns CLOSED or OVER; None if no server answered. After a close whose answer was lost, the next call
        returns OVER.
        """
        if not self._known:
            self.resolve()
        left = list(self._known)
        while left:
            connected = _first_connection([address for _, address in left], CONNECT_LIMIT_S, self._clock)
            if connected is None:
                break
            index, sock = connected
            host, _ = left.pop(index)
            try:
                with self._wrapped(sock, host, answer_limit_s) as connection:
                    return _close_over(connection, handoff)
            except (OSError, wire.WireError):  # it does not serve, or broke off: another server may answer
                continue
        self._known = []  # the names may have other addresses by now: resolve them again
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
    if not wire.is_attached(_receive_frame(connection), handoff.session_id):
        return OVER
    connection.sendall(wire.close_request())
    while not wire.is_closed(_receive_frame(connection)):
        pass
    return CLOSED


def _receive_frame(connection: socket.socket) -> bytes:
    return _receive(connection, wire.frame_length(_receive(connection, wire.LENGTH_BYTES)))


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = connection.recv(count - len(data))
        if not part:
            raise ConnectionResetError("the server closed the connection")
        data += part
    return data


def _resolve(host: str, port: int) -> list[Address]:
    """Return all addresses of a host; an empty list if its name cannot be resolved."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [(int(family), (address[0], address[1])) for family, _, _, _, address in addresses]  # type: ignore[misc]


def _first_connection(
    addresses: Sequence[Address], limit_s: float, clock: Callable[[], float]
) -> tuple[int, socket.socket] | None:
    """Connect to all addresses at once and keep the first connection; the others are closed.

    Returns its index in `addresses` and its socket, in blocking mode; None if there is none in time.
    """
    pending = {sock: index for index, sock in enumerate(map(_begin, addresses)) if sock is not None}
    until = clock() + limit_s
    try:
        while pending and (left_s := until - clock()) > 0:
            _, ready, _ = select.select([], list(pending), [], left_s)
            for sock in ready:
                index = pending.pop(sock)
                if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    sock.setblocking(True)
                    return index, sock
                sock.close()
    finally:
        for sock in pending:
            sock.close()
    return None


def _begin(address: Address) -> socket.socket | None:
    family, where = address
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError:  # for example IPv6 on a machine without it
        return None
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        if sock.connect_ex(where) in (0, errno.EINPROGRESS):
            return sock
    except OSError:
        pass
    sock.close()
    return None
