"""Where a server is, and how to connect to it: directly, through a proxy, over TLS."""

from __future__ import annotations

import base64
import os
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from blobsync.errors import BlobSyncConfigError
from blobsync.s3.config import S3Config
from blobsync.s3.messages import HttpError, parsed
from blobsync.s3.patience import TimeLimits

if TYPE_CHECKING:
    import ssl

_HEAD_BYTES = 64 << 10
_OK = 200
_PORTS = {"http": 80, "https": 443}


class Proxy(NamedTuple):
    """An HTTP proxy on the way to the server.

    `header` is the line `Proxy-Authorization` with its end; empty: no password.
    """

    host: str
    port: int
    header: str

    def __repr__(self) -> str:
        return f"Proxy({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect, and the time limits.

    `tls`: None for plain HTTP. Connects to `proxy` instead, with a tunnel for TLS.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    connect_timeout_s: float
    limits: TimeLimits
    proxy: Proxy | None = None


def endpoint_at(url: SplitResult, config: S3Config, trusted: str | None) -> Endpoint:
    """The server of a URL, by way of the proxy that the environment names for it.

    `trusted` is a file of authorities. BlobSyncConfigError if it holds none, or the proxy is not an HTTP
    proxy.
    """
    return Endpoint(
        host=url.hostname or "",
        port=url.port or _PORTS[url.scheme],
        tls=_tls(trusted) if url.scheme == "https" else None,
        connect_timeout_s=config.connect_timeout.total_seconds(),
        limits=TimeLimits(config.read_timeout.total_seconds(), config.slowest_bytes_per_s),
        proxy=proxy_for(url.scheme, url.netloc),
    )


def connected(endpoint: Endpoint) -> socket.socket:
    """Open a connection to there. OSError or HttpError if that fails."""
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
    """Have the proxy connect to the server. From then on, it passes all bytes on.

    Source: RFC 9110, section 9.3.6.
    """
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    where = f"{host}:{endpoint.port}"
    plain.sendall(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{proxy.header}\r\n".encode())
    until, reply = time.monotonic() + endpoint.connect_timeout_s, b""
    while b"\r\n\r\n" not in reply:
        plain.settimeout(max(0.001, until - time.monotonic()))
        more = plain.recv(_HEAD_BYTES)
        if not more or len(reply) > _HEAD_BYTES or time.monotonic() > until:
            raise HttpError(f"the proxy {proxy.host}:{proxy.port} gave no answer")
        reply += more
    head, _, rest = reply.partition(b"\r\n\r\n")
    status = parsed(head).status
    if status != _OK:
        raise HttpError(f"the proxy {proxy.host}:{proxy.port} refused to connect, with status {status}")
    if rest:
        raise HttpError(f"the proxy {proxy.host}:{proxy.port} sent more than its answer")
    plain.settimeout(endpoint.connect_timeout_s)


def host_header(url: SplitResult) -> str:
    """Value of the header Host: without the default port of the scheme."""
    return url.netloc.removesuffix(f":{_PORTS[url.scheme]}")


def proxy_for(scheme: str, host: str) -> Proxy | None:
    """The proxy that the environment names for a host; None: connect directly.

    BlobSyncConfigError if it is not an HTTP proxy.
    """
    if not any(name.lower() == f"{scheme}_proxy" for name in os.environ):
        return None  # without importing urllib.request
    from urllib.request import getproxies, proxy_bypass

    proxy_url = getproxies().get(scheme)
    if not proxy_url or proxy_bypass(host):
        return None
    try:
        url = urlsplit(proxy_url if "://" in proxy_url else f"http://{proxy_url}")
        port = url.port or _PORTS["http"]
    except ValueError:
        port = 0
    if port == 0 or url.scheme != "http" or not url.hostname:
        raise BlobSyncConfigError(f"{scheme}_proxy must be http://host[:port]; no other kind is known")
    header = ""
    if url.username is not None:
        words = f"{unquote(url.username)}:{unquote(url.password or '')}".encode()
        header = f"Proxy-Authorization: Basic {base64.b64encode(words).decode()}\r\n"
    return Proxy(url.hostname, port, header)


def _tls(trusted: str | None) -> ssl.SSLContext:
    import ssl  # takes time, and plain HTTP does without

    try:
        return ssl.create_default_context(cafile=trusted)
    except OSError as exc:
        raise BlobSyncConfigError(f"ca_bundle {trusted!r} holds no certificates: {exc}") from exc
