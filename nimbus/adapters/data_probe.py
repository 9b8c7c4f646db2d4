"""Probes of data that tasks wait for: objects in S3, files of this host, HTTP responses.

Any thread may call `DataProber.probe`. Each probe has a time limit, except those of files, which the kernel
may block; they have their own threads.

HTTP is protected against requests to internal addresses. Only the status line is read, within one deadline:
no body, no redirect, no proxy, no cookies, no credentials. The name is resolved once. Addresses that no
pipeline should reach (loopback, link-local, cloud metadata services) are refused. The connection uses the
checked address, so a DNS change in between has no effect.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import time
from collections.abc import Callable, Collection
from contextlib import closing
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from blobsync import BlobSyncError, S3ObjectStore
from nimbus.domain.starts.waits import DataProbe, DataSource, ProbeResult

MAX_BUCKETS = 16
"""Most buckets whose clients are cached."""


class DataProber:
    """Probes one thing at a time in each thread. `http_allow`: see `status_of`."""

    def __init__(self, *, open_bucket: Callable[[str], S3ObjectStore], http_allow: Collection[str]) -> None:
        self._bucket = lru_cache(MAX_BUCKETS)(open_bucket)
        self._http_allow = frozenset(host.strip("[]").lower() for host in http_allow)

    def probe(self, probe: DataProbe) -> ProbeResult:
        """Probe once. An error counts as "not there"."""
        try:
            match probe.source:
                case DataSource.S3:
                    return self._in_s3(probe.address)
                case DataSource.FILE:
                    return _file(probe.address)
                case DataSource.HTTP:
                    status = status_of(probe.address, self._http_allow)
                    return ProbeResult(status == probe.status, str(status))
        except (BlobSyncError, UnfitAnswerError, OSError, ValueError) as exc:  # ValueError: not a host name
            return ProbeResult(False, str(exc) or type(exc).__name__)

    def _in_s3(self, address: str) -> ProbeResult:
        bucket, _, key = address.removeprefix("s3://").partition("/")
        store = self._bucket(bucket)
        if key.endswith("/"):
            return ProbeResult(next(iter(store.list(key)), None) is not None, "no object with this prefix")
        return ProbeResult(store.size(key) is not None, "no such object")


def _file(path: str) -> ProbeResult:
    try:
        Path(path).stat()
    except FileNotFoundError:
        return ProbeResult(False, "no such file")
    return ProbeResult(True, "")


TIMEOUT_S = 5.0
"""From the connection to the status. Resolving the name has the time limit of the host's resolver."""
LONGEST_ANSWER = 4096
"""Most bytes that are read without a status line."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])[ \r\n]")
_METADATA = frozenset(
    map(ipaddress.ip_address, ("100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254"))
)
"""Cloud metadata services, except link-local addresses."""
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class UnfitAnswerError(Exception):
    """There is no status: the address is refused, or the server does not use HTTP."""


def status_of(url: str, allowed: Collection[str]) -> int:
    """The status of the response to GET. Host names and addresses in `allowed` are never refused.

    Raises:
        OSError: it does not answer in time.
        UnfitAnswerError: it is refused, or the response is not HTTP.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    address = _checked(host, port, allowed)
    until_s = time.monotonic() + TIMEOUT_S
    with closing(socket.create_connection((address, port), timeout=TIMEOUT_S)) as plain:
        if parts.scheme != "https":
            return _asked(plain, _request(url), until_s)
        plain.settimeout(_left(until_s))
        with ssl.create_default_context().wrap_socket(plain, server_hostname=host) as secured:
            return _asked(secured, _request(url), until_s)


def _checked(host: str, port: int, allowed: Collection[str]) -> str:
    infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(sockaddr[0]) for *_, sockaddr in infos]
    if host in allowed:
        return addresses[0]
    for text in addresses:
        if text not in allowed and is_forbidden(ipaddress.ip_address(text.partition("%")[0])):
            raise UnfitAnswerError(
                f"refused: {host} is {text}, which pipelines must not reach; waits.http_allow can allow it"
            )
    return addresses[0]


def is_forbidden(address: Address) -> bool:
    """True for loopback, link-local, multicast, or a metadata service; also for IPv6 forms of IPv4."""
    inner = _inner(address)
    if inner is not None and is_forbidden(inner):
        return True
    return (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or (address.version == 4 and (address.is_reserved or address in _THIS_NETWORK))
        or address in _METADATA
    )


_THIS_NETWORK = ipaddress.ip_network("0.0.0.0/8")


def _inner(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 address contains."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64 or int(address) >> 32 == 0:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour


def _request(url: str) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return (
        f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: nimbus\r\nAccept: */*\r\n"
        "Connection: close\r\n\r\n"
    ).encode("ascii")


def _asked(connection: socket.socket, request: bytes, until_s: float) -> int:
    connection.settimeout(_left(until_s))
    connection.sendall(request)
    told = b""
    while b"\n" not in told and len(told) < LONGEST_ANSWER:
        connection.settimeout(_left(until_s))
        piece = connection.recv(LONGEST_ANSWER - len(told))
        if not piece:
            break
        told += piece
    status = _STATUS.match(told)
    if status is None:
        raise UnfitAnswerError("what answers does not speak HTTP")
    return int(status[1])


def _left(until_s: float) -> float:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError(f"no answer within {TIMEOUT_S:g} s")
    return left_s
