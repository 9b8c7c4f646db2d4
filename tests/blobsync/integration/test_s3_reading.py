"""Reading with proxies, chunked errors and redirects."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from blobsync import (
    BlobNotFoundError,
    BlobSyncError,
    BucketAccessDeniedError,
    BucketRefusedError,
    BucketUnavailableError,
    S3Config,
    S3ObjectStore,
    Secret,
)
from nimbus.localstack.s3 import S3Server
from tests.blobsync.integration.test_s3_tls import DATA, server

__all__ = ["server"]

Answering = Callable[[bytes], S3ObjectStore]
MISSING = b"<Error><Code>NoSuchKey</Code><Message>The key does not exist.</Message></Error>"


class Proxy:
    """An HTTP proxy on loopback that forwards bytes, and records the heads of requests.

    Args:
        upstream: Target of requests without a tunnel: `127.0.0.1:<port>`.
        tunnels: The answer to CONNECT.
    """

    def __init__(self, upstream: str, tunnels: bytes = b"HTTP/1.1 200 Connected\r\n\r\n") -> None:
        self._upstream, self._tunnels = upstream, tunnels
        self.heads: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = [self._listening]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://user:word@127.0.0.1:{self._listening.getsockname()[1]}"

    def stop(self) -> None:
        for each in self._open:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(60)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                self._open.append(client)
                self._start(self._serve, client)

    def _serve(self, client: socket.socket) -> None:
        head = client.recv(65536)
        self.heads.append(head)
        where = self._upstream
        if head.startswith(b"CONNECT"):
            client.sendall(self._tunnels)
            if not self._tunnels.startswith(b"HTTP/1.1 200 Connected"):
                client.close()
                return
            where = head.split()[1].decode()
        host, _, port = where.rpartition(":")
        upstream = socket.create_connection((host, int(port)))
        self._open.append(upstream)
        if not head.startswith(b"CONNECT"):
            upstream.sendall(head)
        self._start(self._pass_on, upstream, client)
        self._pass_on(client, upstream)

    def _start(self, target: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


def make(endpoint: str, **more: object) -> S3ObjectStore:
    settings: dict[str, object] = {
        "endpoint_url": endpoint,
        "bucket": "bucket",
        "access_key_id": "a",
        "secret_access_key": Secret("s"),
        "max_attempts": 1,
        "read_timeout": timedelta(seconds=2),
    }
    return S3ObjectStore(S3Config(**(settings | more)))  # type: ignore[arg-type]


def test_objects_are_read_through_a_proxy_with_its_password(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"access_key_id": s3_server.access_key, "secret_access_key": Secret(s3_server.secret_key)}
    direct = make(s3_server.endpoint_url, bucket=s3_bucket, **keys)
    direct.write("folder/a key", DATA)
    direct.close()
    proxy = Proxy(urlsplit(s3_server.endpoint_url).netloc)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("http_proxy", proxy.url)
    store = make(s3_server.endpoint_url, bucket=s3_bucket, **keys)

    store.check()
    assert b"".join(store.read("folder/a key")) == DATA
    with (tmp_path / "file").open("w+b") as file:
        store.copy("folder/a key", file.fileno(), start=5, size_bytes=1_000_000, on_progress=lambda _: None)
        assert os.pread(file.fileno(), 1_000_000, 5) == DATA[5:1_000_005]
    store.close()
    proxy.stop()

    assert len(proxy.heads) == 1  # all requests used one connection
    assert proxy.heads[0].startswith(f"GET {s3_server.endpoint_url}/{s3_bucket}?".encode())
    assert b"Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n" in proxy.heads[0]


def test_objects_are_read_over_tls_through_a_tunnel_of_a_proxy(
    server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, bundle = server
    proxy = Proxy("127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("https_proxy", proxy.url)
    store = make(endpoint, ca_bundle=str(bundle))

    assert b"".join(store.read("k")) == DATA
    store.close()
    proxy.stop()

    [head] = proxy.heads
    assert head.startswith(f"CONNECT {urlsplit(endpoint).netloc} HTTP/1.1\r\n".encode())
    assert b"Proxy-Authorization: Basic dXNlcjp3b3Jk\r\n" in head
    assert b"AWS4" not in head


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 403 Forbidden\r\n\r\n",
        b"HTTP/1.1 407 Who\r\n\r\n",
        b"HTTP/1.1 407 Who\r\nContent-Length: 5\r\n\r\nno, you may not",
        b"HTTP/1.1 200 OK\r\n\r\nsurplus",
        b"",
        b"SSH-2.0\r\n\r\n",
        b"HTTP/1.1 200",
    ],
)
def test_proxy_that_opens_no_tunnel_is_told_as_unavailable(
    server: tuple[str, Path], answer: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint, bundle = server
    proxy = Proxy("127.0.0.1:9", answer)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("https_proxy", proxy.url)
    store = make(endpoint, ca_bundle=str(bundle), connect_timeout=timedelta(seconds=1))

    with pytest.raises(BucketUnavailableError) as refused:
        b"".join(store.read("k"))

    assert "word" not in str(refused.value)
    if answer.startswith(b"HTTP/1.1 4"):
        assert f"status {answer[9:12].decode()}" in str(refused.value)
    store.close()
    proxy.stop()


@pytest.fixture
def answering() -> Iterator[Answering]:
    """A store whose server gives the same answer to each request, and closes the connection."""
    stores: list[S3ObjectStore] = []
    listening: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(answer: bytes) -> S3ObjectStore:
        listening.append(socket.create_server(("127.0.0.1", 0)))
        own = listening[-1]

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    peer, _ = own.accept()
                    with peer:
                        peer.recv(65536)
                        peer.sendall(answer)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        stores.append(make(f"http://127.0.0.1:{own.getsockname()[1]}"))
        return stores[-1]

    yield start
    for store in stores:
        store.close()
    for each in listening:
        each.shutdown(socket.SHUT_RDWR)
        each.close()
    for thread in threads:
        thread.join(60)


@pytest.mark.parametrize(
    "framed",
    [
        b"Content-Length: %d\r\n\r\n%b" % (len(MISSING), MISSING),
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(MISSING), MISSING),
        b"Transfer-Encoding: chunked\r\n\r\n7\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n"
        % (MISSING[:7], len(MISSING) - 7, MISSING[7:]),
        b"\r\n" + MISSING,
    ],
    ids=["a length", "one chunk", "two chunks", "until the end"],
)
def test_error_is_understood_however_its_body_is_framed(answering: Answering, framed: bytes) -> None:
    store = answering(b"HTTP/1.1 404 Not Found\r\n" + framed)

    with pytest.raises(BlobNotFoundError):
        b"".join(store.read("k"))


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (
            b"HTTP/1.1 301 Moved\r\nx-amz-bucket-region: eu-west-7\r\nContent-Length: 0\r\n\r\n",
            BucketRefusedError,
            "is in region 'eu-west-7'",
        ),
        (
            b"HTTP/1.1 307 Elsewhere\r\nLocation: http://10.0.0.1/\r\nContent-Length: 0\r\n\r\n",
            BucketUnavailableError,
            "redirects to http://10.0.0.1/",
        ),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", BucketAccessDeniedError, "as a proxy"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 6\r\n\r\n<html>", BucketAccessDeniedError, "403 .* as a proxy"),
        (b"HTTP/1.1 407 Who\r\nContent-Length: 0\r\n\r\n", BucketAccessDeniedError, "407 .* as a proxy"),
        (
            b"HTTP/1.1 403 No\r\nContent-Length: 26\r\n\r\n<Code>AccessDenied</Code>\r\n",
            BucketAccessDeniedError,
            "refused access key id",
        ),
        (
            b"HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n",
            BucketAccessDeniedError,
            "as a proxy",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello",
            BucketUnavailableError,
            r"compressed \(gzip\).* a proxy on the way",
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            BucketUnavailableError,
            "does not say how long it is.* a proxy on the way",
        ),
        (
            b"HTTP/1.1 200 OK\r\n\r\nhello",
            BucketUnavailableError,
            "does not say how long it is.* a proxy on the way",
        ),
        (b"HTTP/1.1 206 Partial\r\nContent-Length: 5\r\n\r\nhello", BucketUnavailableError, "another range"),
        (b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", BucketUnavailableError, "503"),
    ],
    ids=range(12),
)
def test_answer_without_the_object_is_an_error_that_says_what_to_do(
    answering: Answering, answer: bytes, error: type[BlobSyncError], words: str
) -> None:
    store = answering(answer)

    with pytest.raises(error, match=words):
        b"".join(store.read("k"))


def test_endpoint_whose_name_does_not_resolve_is_told_as_such() -> None:
    store = S3ObjectStore(
        S3Config(
            endpoint_url="http://no-such-host.invalid:9000",
            bucket="bucket",
            access_key_id="a",
            secret_access_key=Secret("b"),
        )
    )

    with pytest.raises(BucketUnavailableError, match="does not resolve here"):
        b"".join(store.read("k"))
    with pytest.raises(BucketUnavailableError, match="does not resolve here"):
        list(store.list(""))
    store.close()
