"""Sends what boto3 has made and signed, within bounds: boto3's own time limits count from the last byte.

boto3 lets a handler of `before-send` answer in place of its own HTTP client. Ours is that very client, with
sockets that have a deadline for the whole of a request; proxies, certificates and `Expect: 100-continue` are
as ever.
"""

from __future__ import annotations

import os
import socket
import ssl
from typing import TYPE_CHECKING, Any

from botocore.awsrequest import (
    AWSHTTPConnection,
    AWSHTTPConnectionPool,
    AWSHTTPSConnection,
    AWSHTTPSConnectionPool,
)
from botocore.httpsession import URLLib3Session
from botocore.utils import get_environ_proxies

from blobsync.storage.patience import Limits, Patience, PatientSocket, PatientTlsSocket
from blobsync.storage.s3_config import S3Config

if TYPE_CHECKING:
    from botocore.awsrequest import AWSPreparedRequest

_COMPLETING = 10
"""The server may put an upload together for so many times the usual wait, and says blanks meanwhile."""
_SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]


class Transport:
    """An HTTP client for boto3's clients. Thread-safe.

    Args:
        config: How patiently, and with how many connections.
        verify: File of certificates to trust; None: boto3's own.
    """

    def __init__(self, config: S3Config, verify: str | None) -> None:
        url = config.endpoint_url or "https://s3.amazonaws.com"
        self._session = _Session(
            config,
            verify=verify or os.environ.get("REQUESTS_CA_BUNDLE") or True,
            proxies=get_environ_proxies(url),
            timeout=(config.connect_timeout.total_seconds(), config.read_timeout.total_seconds()),
            max_pool_connections=config.max_connections,
            socket_options=_SOCKET_OPTIONS,
        )

    def send(self, request: AWSPreparedRequest, **_: object) -> Any:
        """Handle `before-send`: an AWSResponse.

        Raises:
            HTTPClientError: no answer, or none within the bounds.
        """
        return self._session.send(request)

    def close(self) -> None:
        """Close the idle connections."""
        self._session.close()


class _Session(URLLib3Session):
    """boto3's own, over patient sockets."""

    def __init__(self, config: S3Config, **more: Any) -> None:
        super().__init__(**more)
        limits = Limits(config.read_timeout.total_seconds(), config.slowest_bytes_per_s)
        self._pool_classes_by_scheme.update(_pools(limits))  # type: ignore[attr-defined] # shared with pools

    def _get_ssl_context(self) -> ssl.SSLContext:
        context: ssl.SSLContext = super()._get_ssl_context()  # type: ignore[misc]
        context.sslsocket_class = PatientTlsSocket
        return context


class _Patient:
    """Mixed into connections: tells their sockets which phase a request is in."""

    limits: Limits
    sock: Any

    def _new_conn(self) -> socket.socket:
        return PatientSocket(super()._new_conn(), self._patience)  # type: ignore[misc]

    @property
    def _patience(self) -> Patience:
        """Made when it is first needed: connections have many ways of being made."""
        found = self.__dict__.get("_own_patience")
        if not isinstance(found, Patience):
            self.__dict__["_own_patience"] = found = Patience(self.limits)
        return found

    def connect(self) -> None:
        """As of connections."""
        self._patience.begin()
        super().connect()  # type: ignore[misc]
        if isinstance(self.sock, PatientTlsSocket):
            self.sock.patience = self._patience

    def request(self, method: str, url: str, *args: Any, **more: Any) -> None:
        """As of connections."""
        completes = method == "POST" and "uploadId=" in url
        self._answer_s = self.limits.silence_s * (_COMPLETING if completes else 1)
        self._patience.begin()
        super().request(method, url, *args, **more)  # type: ignore[misc]

    def getresponse(self) -> Any:
        """As of connections."""
        self._patience.answer(self._answer_s)
        answer = super().getresponse()  # type: ignore[misc]
        self._patience.body(self._answer_s)
        return answer


def _pools(limits: Limits) -> dict[str, type]:
    plain = type("PatientConnection", (_Patient, AWSHTTPConnection), {"limits": limits})
    tls = type("PatientTlsConnection", (_Patient, AWSHTTPSConnection), {"limits": limits})
    return {
        "http": type("PatientPool", (AWSHTTPConnectionPool,), {"ConnectionCls": plain}),
        "https": type("PatientTlsPool", (AWSHTTPSConnectionPool,), {"ConnectionCls": tls}),
    }
