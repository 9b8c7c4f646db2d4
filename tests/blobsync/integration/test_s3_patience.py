"""A server that is never silent and never finishes: each call of the store ends within its limit."""

from __future__ import annotations

import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import RetryPolicy, S3Config, S3ObjectStore, Secret, StoreUnavailableError, collect, publish
from nimbus.localstack.s3 import S3Server
from tests.blobsync.integration.test_s3_tls import certificate
from tests.s3_proxy.faults import Fault, InterimAnswers, ProxiedRequest, Trickle, no_fault
from tests.s3_proxy.proxy import FaultProxy

MIB = 1 << 20
LARGE = random.Random(5).randbytes(11 * MIB)
QUICK = timedelta(milliseconds=500)
BOUND_S = 60.0
"""Limit of a call that would otherwise never end. It makes two tries of half a second."""
ENDLESS = [InterimAnswers(), Trickle()]
Call = Callable[[S3ObjectStore], object]
CALLS: dict[str, Call] = {
    "write": lambda store: store.write("new", b"x" * 1000),
    "write in parts": lambda store: store.write("new", LARGE),
    "size": lambda store: store.size("k"),
    "list": lambda store: list(store.list("")),
    "delete": lambda store: store.delete("k"),
    "delete many": lambda store: store.delete_many(["k", "l"]),
    "uploads": lambda store: list(store.unfinished_uploads("")),
    "abandon": lambda store: store.abandon_uploads("", timedelta(0)),
    "check": lambda store: store.check(),
    "ensure bucket": lambda store: store.ensure_bucket(),
    "read": lambda store: b"".join(store.read("k")),
}


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    with FaultProxy(s3_server.endpoint_url) as running:
        yield running


@pytest.fixture
def store(proxy: FaultProxy, s3_server: S3Server, s3_bucket: str) -> Iterator[S3ObjectStore]:
    made = S3ObjectStore(
        S3Config(
            endpoint_url=proxy.endpoint_url,
            bucket=s3_bucket,
            access_key_id=s3_server.access_key,
            secret_access_key=Secret(s3_server.secret_key),
            read_timeout=QUICK,
            max_attempts=2,
            multipart_bytes=5 * MIB,
            part_bytes=5 * MIB,
        )
    )
    yield made
    made.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ENDLESS, ids=repr)
@pytest.mark.parametrize("call", CALLS)
def test_call_is_given_up_when_the_server_talks_without_end(
    proxy: FaultProxy, store: S3ObjectStore, call: str, fault: Fault
) -> None:
    store.write("k", b"here")
    proxy.rule = lambda _: fault
    began = time.monotonic()

    with pytest.raises(StoreUnavailableError, match="s3://"):
        CALLS[call](store)

    assert time.monotonic() - began < BOUND_S
    proxy.rule = no_fault
    CALLS[call](store)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ENDLESS, ids=repr)
@pytest.mark.parametrize("step", ["PUT part", "POST complete"])
def test_step_of_an_upload_is_given_up_and_the_next_try_completes_it(
    proxy: FaultProxy, store: S3ObjectStore, step: str, fault: Fault
) -> None:
    method = step.partition(" ")[0]

    def rule(request: ProxiedRequest) -> Fault | None:
        return fault if request.method == method and "uploadId" in request.query else None

    proxy.rule = rule
    with pytest.raises(StoreUnavailableError, match="new"):
        store.write("new", LARGE)

    proxy.rule = no_fault
    store.write("new", LARGE)
    assert store.size("new") == len(LARGE)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ENDLESS, ids=repr)
def test_publish_is_over_at_its_deadline_when_the_server_talks_without_end(
    proxy: FaultProxy, store: S3ObjectStore, fault: Fault, tmp_path: Path
) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "file").write_bytes(b"x" * 100)
    retry = RetryPolicy(
        first_wait=timedelta(milliseconds=20),
        max_wait=timedelta(milliseconds=100),
        deadline=timedelta(seconds=2),
    )
    proxy.rule = lambda _: fault
    began = time.monotonic()

    with pytest.raises(StoreUnavailableError):
        publish(store, name="p", files=collect(folder, include=["**"]), retry=retry, scratch=tmp_path)

    assert time.monotonic() - began < BOUND_S


@pytest.mark.timeout(120)
def test_server_that_takes_nothing_of_an_upload_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        store = direct(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(StoreUnavailableError, match="new"):
            store.write("new", LARGE[: 4 * MIB])
        store.close()


@pytest.mark.timeout(120)
def test_endless_interim_answers_over_tls_are_given_up(tmp_path: Path) -> None:
    file = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    over = threading.Event()

    def serve() -> None:
        while not over.is_set():
            try:
                peer, _ = listening.accept()
                with context.wrap_socket(peer, server_side=True) as tls:
                    while not over.wait(0.01):
                        tls.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            except OSError:  # the client closed the connection
                continue

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        store = direct(f"https://127.0.0.1:{listening.getsockname()[1]}", ca_bundle=str(file))
        try:
            with pytest.raises(StoreUnavailableError, match="k"):
                store.size("k")
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            store.close()


def direct(endpoint: str, ca_bundle: str | None = None) -> S3ObjectStore:
    return S3ObjectStore(
        S3Config(
            endpoint_url=endpoint,
            bucket="b",
            access_key_id="k",
            secret_access_key=Secret("s"),
            read_timeout=QUICK,
            max_attempts=1,
            ca_bundle=ca_bundle,
        )
    )
