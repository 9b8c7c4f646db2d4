"""A server that is never silent and never finishes: each call of the store ends within its limit."""

from __future__ import annotations

import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from blobsync import BucketUnavailableError, RetryPolicy, S3Config, S3ObjectStore, Secret, collect, publish
from blobsync.retry import call_retrying
from blobsync.s3 import transport
from nimbus.localstack.s3 import S3Server
from tests.blobsync.integration.test_s3_tls import certificate
from tests.s3_proxy.faults import Fault, InterimAnswers, ProxiedRequest, Trickle, no_fault
from tests.s3_proxy.proxy import FaultProxy

MIB = 1 << 20
LARGE = random.Random(5).randbytes(11 * MIB)
QUICK = timedelta(milliseconds=500)
SHORT = timedelta(milliseconds=300)  # where no request must succeed
BOUND_S = 60.0
"""Limit of a call that would otherwise never end. It makes two tries of half a second."""
UNTIL_IT_SUCCEEDS = RetryPolicy(deadline=timedelta(seconds=BOUND_S))
"""For a good server on a busy machine, which may need longer than half a second."""
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
def threads() -> Iterator[ThreadPoolExecutor]:
    """For calls that wait at the same time."""
    with ThreadPoolExecutor(len(CALLS)) as running:
        yield running


@pytest.fixture
def proxy(s3_server: S3Server, threads: ThreadPoolExecutor) -> Iterator[FaultProxy]:
    """It ends before the threads, so that a call without a limit fails its test and does not hold it up."""
    with FaultProxy(s3_server.endpoint_url) as running:
        yield running


@pytest.fixture
def config(proxy: FaultProxy, s3_config: S3Config) -> S3Config:
    return replace(
        s3_config,
        endpoint_url=proxy.endpoint_url,
        read_timeout=QUICK,
        max_attempts=2,
        multipart_bytes=5 * MIB,
        part_bytes=5 * MIB,
    )


@pytest.fixture
def store(config: S3Config) -> Iterator[S3ObjectStore]:
    made = S3ObjectStore(config)
    yield made
    made.close()


def given_up_s(call: Call, store: S3ObjectStore) -> float:
    """Make a call that cannot succeed. Returns how long it took."""
    began = time.monotonic()
    with pytest.raises(BucketUnavailableError, match="s3://"):
        call(store)
    return time.monotonic() - began


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ENDLESS, ids=repr)
def test_each_call_is_given_up_when_the_server_talks_without_end(
    proxy: FaultProxy, config: S3Config, threads: ThreadPoolExecutor, fault: Fault
) -> None:
    """All calls wait at the same time, each with its own connections and prefix."""
    with ExitStack() as stack:
        stores = {name: S3ObjectStore(replace(config, prefix=name.replace(" ", "-"))) for name in CALLS}
        for store in stores.values():
            stack.callback(store.close)
            store.write("k", b"here")
        proxy.rule = lambda _: fault

        running = {name: threads.submit(given_up_s, call, stores[name]) for name, call in CALLS.items()}
        took_s = {name: future.result() for name, future in running.items()}

        assert max(took_s.values()) < BOUND_S, took_s
        proxy.rule = no_fault
        for name, call in CALLS.items():
            call_retrying(partial(call, stores[name]), UNTIL_IT_SUCCEEDS, what=name)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ENDLESS, ids=repr)
def test_step_of_an_upload_is_given_up_and_the_next_try_completes_it(
    proxy: FaultProxy,
    store: S3ObjectStore,
    threads: ThreadPoolExecutor,
    fault: Fault,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "_COMPLETING", 1)
    steps = {"part": "PUT", "complete": "POST"}

    def rule(request: ProxiedRequest) -> Fault | None:
        return fault if "uploadId" in request.query and request.method == steps[request.key] else None

    def write(key: str) -> None:
        store.write(key, LARGE)

    proxy.rule = rule
    for took_s in threads.map(lambda key: given_up_s(lambda _: write(key), store), steps):
        assert took_s < BOUND_S

    proxy.rule = no_fault
    for key in steps:
        call_retrying(partial(write, key), UNTIL_IT_SUCCEEDS, what=key)
        assert store.size(key) == len(LARGE)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", ENDLESS, ids=repr)
def test_publish_is_over_at_its_deadline_when_the_server_talks_without_end(
    proxy: FaultProxy, config: S3Config, fault: Fault, tmp_path: Path
) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "file").write_bytes(b"x" * 100)
    retry = RetryPolicy(
        first_wait=timedelta(milliseconds=20),
        max_wait=timedelta(milliseconds=100),
        deadline=timedelta(seconds=1),
    )
    proxy.rule = lambda _: fault
    began = time.monotonic()

    store = S3ObjectStore(replace(config, read_timeout=SHORT, max_attempts=1))
    with closing(store), pytest.raises(BucketUnavailableError):
        publish(store, name="p", files=collect(folder, include=["**"]), retry=retry, scratch=tmp_path)

    assert time.monotonic() - began < BOUND_S


@pytest.mark.timeout(120)
def test_server_that_takes_nothing_of_an_upload_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        store = direct(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(BucketUnavailableError, match="new"):
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
            with pytest.raises(BucketUnavailableError, match="k"):
                store.size("k")
        finally:
            over.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(60)
            store.close()


def direct(endpoint: str, ca_bundle: str | None = None) -> S3ObjectStore:
    return S3ObjectStore(
        S3Config(
            endpoint_url=endpoint,
            bucket="b",
            access_key_id="k",
            secret_access_key=Secret("s"),
            read_timeout=SHORT,
            max_attempts=1,
            ca_bundle=ca_bundle,
        )
    )
