"""Sends requests of boto3 within the time limits of `patience`: boto3's own count from the last byte.

A handler of `before-send` may answer in place of boto3's HTTP client. This one is the same client, with
sockets that have a deadline for the whole request; proxies, certificates and `Expect: 100-continue` work as
before.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable
from functools import partialmethod
from typing import Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies

from blobsync.s3.config import S3Config
from blobsync.s3.patience import RequestPatience, TimeLimits

_COMPLETING = 10
"""To complete an upload a server has this many times the usual limit; it sends blanks meanwhile."""
_PIECE_BYTES = 16 << 10
_SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]


class PatientSocket(socket.socket):
    """A plain connection with time limits. `plain` must not be used any more."""

    def __init__(self, plain: socket.socket, patience: RequestPatience) -> None:
        waits = plain.gettimeout()
        super().__init__(plain.family, plain.type, plain.proto, fileno=plain.detach())
        self.settimeout(waits)
        self._patience = patience

    def recv_into(self, buffer: memoryview, nbytes: int = 0, flags: int = 0) -> int:  # type: ignore[override]
        """See `socket.socket`."""
        return _receive(
            self, self._patience, lambda: super(PatientSocket, self).recv_into(buffer, nbytes, flags)
        )

    def sendall(self, data: bytes, flags: int = 0) -> None:  # type: ignore[override]
        """See `socket.socket`."""
        _send(self, self._patience, data, lambda piece: super(PatientSocket, self).sendall(piece, flags))


class PatientTlsSocket(ssl.SSLSocket):
    """A connection over TLS. Its limits hold once `patience` is set, after the handshake."""

    patience: RequestPatience | None = None

    def recv_into(self, buffer: memoryview, nbytes: int | None = None, flags: int = 0) -> int:  # type: ignore[override]
        """See `socket.socket`."""
        return _receive(
            self, self.patience, lambda: super(PatientTlsSocket, self).recv_into(buffer, nbytes, flags)
        )

    def sendall(self, data: bytes, flags: int = 0) -> None:  # type: ignore[override]
        """See `socket.socket`."""
        _send(self, self.patience, data, lambda piece: super(PatientTlsSocket, self).sendall(piece, flags))


def _receive(sock: socket.socket, patience: RequestPatience | None, receive: Callable[[], int]) -> int:
    if patience is None:
        return receive()
    sock.settimeout(patience.to_receive_s())
    began = patience.now()
    size_bytes = receive()
    patience.moved(began, size_bytes)
    return size_bytes


def _send(
    sock: socket.socket, patience: RequestPatience | None, data: bytes, send: Callable[[memoryview], None]
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


class Transport(URLLib3Session):
    """boto3's HTTP client, over sockets with time limits. Thread-safe.

    `verify` is a file of certificates to trust; None: boto3's own.
    """

    def __init__(self, config: S3Config, verify: str | None) -> None:
        settings: dict[str, Any] = {  # the stubs of botocore know fewer types than it takes
            "verify": verify or os.environ.get("REQUESTS_CA_BUNDLE") or True,
            "proxies": get_environ_proxies(config.endpoint_url or "https://s3.amazonaws.com"),
            "timeout": (config.connect_timeout.total_seconds(), config.read_timeout.total_seconds()),
            "max_pool_connections": config.max_connections,
            "socket_options": _SOCKET_OPTIONS,
        }
        super().__init__(**settings)
        limits = TimeLimits(config.read_timeout.total_seconds(), config.slowest_bytes_per_s)
        self._pool_classes_by_scheme.update(_pools(limits))  # type: ignore[attr-defined] # shared with pools

    def _get_ssl_context(self) -> ssl.SSLContext:
        context: ssl.SSLContext = super()._get_ssl_context()  # type: ignore[misc]
        context.sslsocket_class = PatientTlsSocket
        return context


class _Patient:
    """Mixed into connections: notes which phase a request is in."""

    limits: TimeLimits
    sock: Any

    def _new_conn(self) -> socket.socket:
        return PatientSocket(super()._new_conn(), self._patience)  # type: ignore[misc]

    @property
    def _patience(self) -> RequestPatience:
        """Made when it is first needed, since connections are made in several ways."""
        patience = self.__dict__.get("_own_patience")
        if not isinstance(patience, RequestPatience):
            self.__dict__["_own_patience"] = patience = RequestPatience(self.limits)
        return patience

    def connect(self) -> None:
        self._patience.begin()
        super().connect()  # type: ignore[misc]
        if isinstance(self.sock, PatientTlsSocket):
            self.sock.patience = self._patience

    def request(self, method: str, url: str, *args: Any, **more: Any) -> None:
        completes = method == "POST" and "uploadId=" in url
        self._answer_s = self.limits.silence_s * (_COMPLETING if completes else 1)
        self._patience.begin()
        super().request(method, url, *args, **more)  # type: ignore[misc]

    def getresponse(self) -> Any:
        self._patience.answer(self._answer_s)
        answer = super().getresponse()  # type: ignore[misc]
        self._patience.body(self._answer_s)
        return answer


def _pools(limits: TimeLimits) -> dict[str, type]:
    plain = type("PatientConnection", (_Patient, AWSHTTPConnection), {"limits": limits})
    tls = type("PatientTlsConnection", (_Patient, AWSHTTPSConnection), {"limits": limits})
    return {
        "http": _pool("PatientPool", AWSHTTPConnectionPool, plain),
        "https": _pool("PatientTlsPool", AWSHTTPSConnectionPool, tls),
    }


def _pool(name: str, base: type, connection: type) -> type:
    """A pool of these connections that follows no redirect: urllib3 fails at a 303 to a signed request."""
    no_redirect = partialmethod(base.urlopen, redirect=False)  # type: ignore[attr-defined]
    return type(name, (base,), {"ConnectionCls": connection, "urlopen": no_redirect})
