"""The client for Python against a real API server, and against schedulers that fail in known ways."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from nimbus.client import (
    BusyError,
    Client,
    ConflictError,
    DeniedError,
    NotFoundError,
    ProblemError,
    UnreachableError,
    WaitTimeoutError,
)
from nimbus.domain.ids import AttemptId, RunId, TaskName

PROJECT = Path(__file__).parents[3]
Answer = tuple[int, Mapping[str, str], Any]


@contextmanager
def scheduler(answer: Callable[[str, str, Mapping[str, str]], Answer]) -> Iterator[str]:
    """A server that answers by method, path and headers."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, body = answer(self.command, self.path.partition("?")[0], self.headers)
            data = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(data))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _answer  # noqa: N815 - names of the base class

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_start_wait_results_and_log_are_those_of_the_run(world: Any, api_url: str) -> None:
    world.logs.append(AttemptId(RunId("mine"), TaskName("extract"), 1), 0, b"one\n")
    with Client(api_url) as client:
        run = client.start("sums", {"n": 3}, run_id="mine")
        world.succeeded("mine")
        ended = client.wait(run.id)
        pieces = list(client.log("mine", "extract"))

        assert (run.id, run.state, ended.state, ended.is_final) == ("mine", "queued", "succeeded", True)
        assert [row.id for row in client.runs(pipeline="sums")] == ["mine"]
        assert client.results("mine") == client.get("/runs/mine/results")["results"]
        assert [(piece.data, piece.end) for piece in pieces] == [(b"one\n", 4), (b"", 4)]


def test_refusals_are_errors_with_code_and_places(world: Any, api_url: str) -> None:
    with Client(api_url) as client:
        with pytest.raises(NotFoundError, match="not in the catalog") as unknown:
            client.start("absent")
        with pytest.raises(ProblemError) as invalid:
            client.start("sums", run_id="A/B")
        world.refuse = ("quarantined", "file lost")
        with pytest.raises(ConflictError, match="file lost") as refused:
            client.start("sums")

    assert (unknown.value.code, unknown.value.status) == ("unknown_pipeline", 404)
    assert (invalid.value.code, invalid.value.errors[0]["place"]) == ("invalid_request", "body.run_id")
    assert (refused.value.code, refused.value.status) == ("quarantined", 409)


@pytest.mark.parametrize(
    ("code", "kind", "status"),
    [
        ("quarantined", ConflictError, 409),
        ("unknown_pool", NotFoundError, 404),
        ("role_too_low", DeniedError, 403),
        ("changed", ConflictError, 412),
    ],
)
def test_late_refusal_is_the_same_error_as_one_in_time(
    world: Any,
    api_url: str,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    kind: type[ProblemError],
    status: int,
) -> None:
    def decided_now(client: Client) -> object:
        world.decide()
        return leader(client)

    leader, world.deciding, world.refuse = Client.leader, False, (code, "told late")
    monkeypatch.setattr(Client, "leader", decided_now)
    monkeypatch.setattr("nimbus.client.api._WAIT_S", 0)

    with Client(api_url) as client, pytest.raises(kind, match="told late") as refused:
        client.start("sums")

    assert (type(refused.value), refused.value.code, refused.value.status) == (kind, code, status)


def test_run_that_is_not_over_in_time_goes_on(world: Any, api_url: str) -> None:
    world.opened(world.new_run("r1"), "extract")

    with Client(api_url) as client, pytest.raises(WaitTimeoutError, match="it continues"):
        client.wait("r1", timeout_s=0)


def test_start_without_a_leader_is_pending_and_its_refusal_is_raised_by_wait(
    world: Any, api_url: str
) -> None:
    world.deciding, world.health.leading = False, None
    with Client(api_url, "http://127.0.0.1:1") as client:
        client.command("POST", "/runs", {"pipeline": "sums", "run_id": "early"}, decided=False)
        assert client.run("early").state == "pending"
        world.refuse = ("quarantined", "file lost")
        world.decide()
        with pytest.raises(ConflictError, match="file lost"):
            client.wait("early")


def test_busy_scheduler_is_asked_again_after_the_time_it_names_with_the_same_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept, keys = list[float](), list[str]()
    monkeypatch.setattr("tenacity.nap.time.sleep", slept.append)

    def answer(_method: str, _path: str, headers: Mapping[str, str]) -> Answer:
        keys.append(headers["Idempotency-Key"])
        refused = [(429, "7"), (503, "3")]
        if len(keys) <= len(refused):
            status, after = refused[len(keys) - 1]
            return status, {"Retry-After": after}, {"code": "too_many_requests", "detail": "wait"}
        return 200, {}, {"status": "accepted", "command_id": "c", "run_id": "r"}

    with scheduler(answer) as url, Client(url, learn_after_s=3600) as client:
        assert client.start("sums").id == "r"

    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert [int(pause) for pause in slept] == [7, 3]


def test_scheduler_that_stays_busy_is_told_from_one_that_does_not_answer() -> None:
    busy = 429, {"Retry-After": "60"}, {"code": "too_many_requests", "detail": "wait"}

    with scheduler(lambda *_: busy) as url, Client(url) as client, pytest.raises(BusyError) as refused:
        client.leader()
    with Client("http://127.0.0.1:1", patience_s=0) as client, pytest.raises(UnreachableError) as silent:
        client.leader()

    assert (refused.value.retry_after_s, refused.value.retryable, silent.value.retryable) == (60, True, True)
    assert list(silent.value.tried) == ["http://127.0.0.1:1"]


def test_other_schedulers_are_learnt_and_used_when_the_known_one_is_gone() -> None:
    seen = list[str]()

    def other(_method: str, path: str, headers: Mapping[str, str]) -> Answer:
        seen.append(f"{path} {headers['Authorization']}")
        return 200, {}, {"leader": {"id": "s2"}}

    with scheduler(other) as second:
        rows = {"participants": [{"address": second}, {"address": None}, {"address": "ftp://x"}]}

        def first(_method: str, path: str, _headers: Mapping[str, str]) -> Answer:
            return 200, {}, rows if path.endswith("/participants") else {"leader": {"id": "s1"}}

        with scheduler(first) as url:
            client = Client(url, token="nbs_a")
            assert client.leader() == {"id": "s1"}
        with client:
            assert client.leader() == {"id": "s2"}

    assert seen == ["/api/v1/leader Bearer nbs_a"]


def test_learnt_scheduler_gets_the_stored_token_of_the_one_that_named_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nimbus.client.servers.kept_tokens", lambda: {"https://a": "nbs_a"})
    client = Client("https://a")
    rows = [{"address": "https://b/"}, {"address": "http://c"}]
    answer = type("Answer", (), {"json": lambda _self: {"participants": rows}})()
    monkeypatch.setattr(client, "_round", lambda *_: answer)

    client._learn()
    client.close()

    assert client._servers == ["https://a", "https://b"], "an address without TLS is not learnt from one with"
    assert client._credentials("https://b") == {"Authorization": "Bearer nbs_a"}
    assert client._credentials("https://d") == {}


def test_example_of_the_document_runs(
    world: Any, api_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (PROJECT / "docs/client.md").read_text(), re.DOTALL)
    monkeypatch.setenv("NIMBUS_SERVER", api_url)
    start = Client.start

    def started(self: Client, *given: Any, **more: Any) -> Any:
        run = start(self, *given, **more)
        world.succeeded(run.id)
        world.logs.append(AttemptId(RunId(run.id), TaskName("extract"), 1), 0, b"read 3\n")
        return run

    monkeypatch.setattr(Client, "start", started)
    monkeypatch.setattr("nimbus.client.client._LATE_S", 0.0)

    exec(compile(code, "docs/client.md", "exec"), {})

    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("succeeded ")
    assert printed[1] == "read 3"
    assert (world.accepted[-1].dataset, world.accepted[-1].uri) == ("landing", "s3://in/2026-03-01.csv")


def test_client_imports_nothing_of_a_server() -> None:
    code = "import sys, nimbus.client; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", _PATH + code], capture_output=True, text=True, check=True
    )

    heavy = {"boto3", "kazoo", "pyspark", "fastapi", "pydantic", "blake3", "yaml", "structlog"}
    assert heavy & set(done.stdout.split()) == set()


_PATH = f"import sys; sys.path[:0] = {sys.path!r}; "
