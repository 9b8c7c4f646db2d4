"""The bucket of outputs through signed addresses: refusals without a request, and temporary errors."""

from __future__ import annotations

import json
import threading
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from blobsync import BucketRefusedError, BucketUnavailableError, InvalidKeyError, RetryPolicy
from blobsync.testing.memory import MemoryObjectStore
from nimbus.worker.application.reports import END_PATIENCE_S
from nimbus.worker.data import bucket, signed
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.data.signed import commit

ACCESS: dict[str, Any] = {
    "endpoints": ["http://127.0.0.1:9"],  # no server listens there
    "attempt": "run1.load.1",
    "pipeline": "sums",
    "release": "0" * 64,
    "token": "0",
    "nonce": "ab",
    "uri": "s3://bucket/data",
    "output": "sums/run1/load/1-ab",
    "inputs": {"load": "sums/run1/load/1-cd/manifest-ef.json"},
}


@pytest.fixture(autouse=True)
def _no_stores() -> Any:
    yield
    signed._stores.clear()


def test_file_that_one_request_cannot_carry_is_refused_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signed, "MAX_BYTES", 3)
    file = tmp_path / "large"
    file.write_bytes(b"1234")

    with pytest.raises(BucketRefusedError, match=r"has 4 bytes.*let the task write several"):
        signed.SignedStore(ACCESS).write("k", file)


def test_scheduler_that_does_not_answer_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed, "_GATEWAY_PATIENCE_S", 0.0)

    with pytest.raises(BucketUnavailableError, match="no scheduler answered"):
        signed.SignedStore(ACCESS).size("k")


def test_inputs_can_be_named_and_looked_for_before_they_are_copied(tmp_path: Path) -> None:
    place = tmp_path / "copy"

    inputs = signed.CopiedInputs(ACCESS, {"load": place})

    assert (list(inputs), len(inputs)) == (["load"], 1)
    assert "load" in inputs
    assert "other" not in inputs
    place.mkdir()  # like a copied folder
    assert inputs["load"] == place


def test_key_that_no_store_takes_is_refused_before_a_scheduler_is_asked() -> None:
    with pytest.raises(InvalidKeyError, match="has a backslash"):
        signed.SignedStore(ACCESS).write("a\\b", b"")


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """The URL of a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


class Lagging(BaseHTTPRequestHandler):
    """A scheduler that does not see the claim."""

    def do_POST(self) -> None:
        self.send_response(409)
        self.end_headers()
        self.wfile.write(b'{"detail": "no claim"}')

    def log_message(self, *_: object) -> None:
        pass


class Signing(Lagging):
    """A scheduler that signs."""

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"url": "http://bucket/k", "headers": {}}')


def test_scheduler_that_does_not_see_the_claim_yet_refuses_no_upload() -> None:
    with serving(Lagging) as lagging, serving(Signing) as signing:
        store = signed.SignedStore({**ACCESS, "endpoints": [lagging, signing]})

        assert store._signed("PUT", "k") == ("http://bucket/k", {})


def test_claim_that_no_scheduler_sees_for_long_ends_the_upload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signed, "_GATEWAY_PATIENCE_S", 0.0)
    with serving(Lagging) as lagging:
        dead_too = ["http://127.0.0.1:9", lagging, "http://127.0.0.1:9"]
        with pytest.raises(BucketRefusedError, match="409: no claim"):
            signed.SignedStore({**ACCESS, "endpoints": dead_too})._signed("PUT", "k")


def test_download_that_breaks_off_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(Lagging):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"half")

    with serving(Breaks) as url:
        monkeypatch.setattr(signed.SignedStore, "_signed", lambda *_: (f"{url}/", {}))
        with pytest.raises(BucketUnavailableError, match="6 bytes are missing"):
            list(signed.SignedStore(ACCESS).read("k"))


def test_store_of_an_attempt_is_made_once_and_hears_of_later_schedulers(tmp_path: Path) -> None:
    later = tmp_path / "schedulers.json"
    access = {**ACCESS, "schedulers": str(later)}
    store = signed.signed_store(access)

    later.write_text(json.dumps(["http://later:1"]))

    assert signed.latest(access)["endpoints"] == ["http://later:1"]
    assert signed.signed_store(access) is store
    assert store.gateway.endpoints == (*ACCESS["endpoints"], "http://later:1")
    assert signed.signed_store({**access, "nonce": "of another driver"}) is not store


class SlowStore(MemoryObjectStore):
    """Waits at the first reads of an object until there are two."""

    def __init__(self) -> None:
        super().__init__()
        self._two = threading.Barrier(2)

    def read(self, key: str, *more: Any, **named: Any) -> Iterator[bytes]:
        with suppress(threading.BrokenBarrierError):
            self._two.wait(0.5)
        return super().read(key, *more, **named)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[SlowStore, signed.CopiedInputs]:
    """The inputs of an attempt in a cluster: one, with two files."""
    store = SlowStore()
    place = BucketPlace("s3://b/p", tmp_path, lambda: store)
    output = tmp_path / "output"
    (output / "data").mkdir(parents=True)
    (output / "data" / "part-0").write_text("0")
    (output / "other").write_text("1")
    reference = place.commit(output, place.prefix("sums/run1/load/1"))
    monkeypatch.setattr(signed, "signed_store", lambda _: store)
    copy = tmp_path / "inputs" / place.input(reference).name
    return store, signed.CopiedInputs({**ACCESS, "inputs": {"load": reference}}, {"load": copy})


def test_input_that_two_threads_ask_for_is_copied_once(
    inputs: tuple[SlowStore, signed.CopiedInputs],
) -> None:
    store, copied = inputs
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append((copied["load"] / "other").read_text()))
        for _ in range(2)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert found == ["1", "1"]
    assert [count for key, count in store.reads.items() if "manifest-" in key] == [1]


def test_files_of_an_input_are_named_without_a_copy(inputs: tuple[SlowStore, signed.CopiedInputs]) -> None:
    store, copied = inputs

    assert sorted(map(str, copied.files("load"))) == ["data/part-0", "other"]
    assert store.reads.total() == 1


def test_upload_of_a_success_is_tried_as_long_as_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadlines = set()

    def noting(call: Callable[[], Any], policy: RetryPolicy, **_: Any) -> Any:
        deadlines.add(policy.deadline.total_seconds())
        return call()

    monkeypatch.setattr(bucket, "call_retrying", noting)
    monkeypatch.setattr(signed, "signed_store", lambda _: MemoryObjectStore())
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "told").write_text("42")

    kept = commit({"access": ACCESS, "output": str(tmp_path / "output"), "noted": str(tmp_path / "parts")})

    assert kept["output"].startswith(ACCESS["output"])
    assert deadlines == {END_PATIENCE_S}


@pytest.mark.parametrize(
    ("status", "error"),
    [(307, BucketUnavailableError), (503, BucketUnavailableError), (400, BucketRefusedError)],
)
def test_redirect_of_a_store_is_worth_another_try_and_a_refusal_is_not(
    status: int, error: type[Exception]
) -> None:
    answer = urllib.error.HTTPError("http://s3/b/k", status, "told", Message(), None)

    assert type(signed._translated(answer, "k")) is error
