"""Opens a connection to whichever server answers first.

One after the other would not do: a server's machine that is gone answers nothing, and a sentinel in a hurry
would wait for it.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ssl

Address = tuple[int, tuple[str, int]]
"""Family and what `connect` takes."""


class Tls(NamedTuple):
    """Files for TLS, as kazoo takes them. `-` says: none."""

    ca: str
    certificate: str = "-"
    key: str = "-"
    verify: str = "verify"
    """`verify`; `no-hostname`: any name on the certificate; `none`: any certificate."""


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Read the files now, while there is time.

    Raises:
        OSError: a file is missing or no certificate.
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


def resolve(host: str, port: int) -> list[Address]:
    """All addresses of a host; none when its name is not known now."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return [(int(family), (address[0], address[1])) for family, _, _, _, address in found]  # type: ignore[misc]


def first_connection(
    addresses: Sequence[Address], limit_s: float, clock: Callable[[], float]
) -> tuple[int, socket.socket] | None:
    """Connect to all at once and keep the first that is up; None: none within the limit.

    Returns:
        Its index in `addresses`, and the socket, blocking.
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
    except OSError:  # such as IPv6 on a machine without it
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
