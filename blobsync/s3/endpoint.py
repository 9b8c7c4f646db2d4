"""Opens sockets to a server: directly, through a proxy, over TLS."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blobsync.s3.answer import HttpError, parsed
from blobsync.s3.patience import Limits
from blobsync.s3.request import Proxy

if TYPE_CHECKING:
    import ssl

_HEAD_BYTES = 64 << 10
_OK = 200


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect, and the time limits.

    Args:
        host: Name or address.
        port: Of TCP.
        tls: None: plain HTTP.
        connect_timeout_s: For opening a connection.
        limits: Of each request.
        proxy: Connect to this instead, with a tunnel for TLS; None: directly.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    connect_timeout_s: float
    limits: Limits
    proxy: Proxy | None = None


def connected(endpoint: Endpoint) -> socket.socket:
    """Open a connection to there.

    Raises:
        OSError, HttpError: it cannot be opened.
    """
    at = endpoint.proxy or endpoint
    plain = socket.create_connection((at.host, at.port), endpoint.connect_timeout_s)
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if endpoint.tls is None:
            return plain
        if endpoint.proxy is not None:
            _open_tunnel(plain, endpoint, endpoint.proxy)
        return endpoint.tls.wrap_socket(plain, server_hostname=endpoint.host)
    except BaseException:
        plain.close()
        raise


def _open_tunnel(plain: socket.socket, endpoint: Endpoint, proxy: Proxy) -> None:
    """Have the proxy connect to the server. What follows is between the server and us.

    Source: RFC 9110, section 9.3.6.
    """
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    where = f"{host}:{endpoint.port}"
    plain.sendall(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{proxy.header}\r\n".encode())
    until, told = time.monotonic() + endpoint.connect_timeout_s, b""
    while b"\r\n\r\n" not in told:
        plain.settimeout(max(0.001, until - time.monotonic()))
        more = plain.recv(_HEAD_BYTES)
        if not more or len(told) > _HEAD_BYTES or time.monotonic() > until:
            raise HttpError(f"the proxy {proxy.host}:{proxy.port} gave no answer")
        told += more
    head, _, rest = told.partition(b"\r\n\r\n")
    status = parsed(head).status
    if status != _OK:
        raise HttpError(f"the proxy {proxy.host}:{proxy.port} refused to connect, with status {status}")
    if rest:
        raise HttpError(f"the proxy {proxy.host}:{proxy.port} sent more than its answer")
    plain.settimeout(endpoint.connect_timeout_s)
