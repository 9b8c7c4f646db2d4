"""The REST gateway of Spark's standalone masters: their answers, and the results."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from nimbus.worker.application.bootstrap import VARIABLE
from nimbus.worker.application.manager import (
    ClusterUnreachableError,
    DriverState,
    Submission,
    SubmissionRefusedError,
    SubmissionUnknownError,
)
from nimbus.worker.application.standalone import StandaloneManager

Answer = Callable[[str, bytes], tuple[int, dict[str, Any]] | None]
SUBMISSION = Submission(
    name="nimbus-c-r.t.1",
    bootstrap_url="http://s1/attempt/v1/bootstrap.py",
    startup='{"attempt": "r.t.1"}',
    conf={"spark.executor.memory": "2g", "spark.driver.supervise": "true"},
    environment={"A": "b"},
)
STANDBY = {"message": "Current state is not alive: STANDBY", "success": False}


@contextmanager
def master(answer: Answer) -> Iterator[str]:
    """A master's gateway. It closes the connection if `answer` returns None."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if (found := answer(self.path, body)) is None:
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            data = json.dumps(found[1]).encode()
            self.send_response(found[0])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST  # noqa: N815 - the server's name for it

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="master")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()


def test_waiting_driver_is_told_with_the_figures_of_the_queue() -> None:
    page = {
        "status": "ALIVE",
        "cores": 4,
        "coresused": 4,
        "memory": 4096,
        "memoryused": 1536,
        "activeapps": [{"state": "RUNNING"}, {"state": "WAITING"}],
        "activedrivers": [{"state": "RUNNING"}, {"state": "SUBMITTED"}, {"state": "SUBMITTED"}],
    }
    waits = {"success": True, "driverState": "SUBMITTED"}

    def answer(path: str, _: bytes) -> tuple[int, dict[str, Any]]:
        return 200, page if path == "/json/" else waits

    def without(path: str, _: bytes) -> tuple[int, dict[str, Any]]:
        return (200, {"status": "STANDBY"}) if path == "/json/" else (200, waits)

    with master(answer) as url, master(without) as standby:
        one = StandaloneManager("spark://m:7077", [url], "4.3.0", pages=["http://127.0.0.1:9", standby, url])
        assert one.probe("driver-1").words == (
            "SUBMITTED; 4 of 4 cores and 1.5 of 4.0 GiB are in use, 2 drivers and 1 application wait"
        )
        bare = StandaloneManager("spark://m:7077", [url], "4.3.0", pages=[standby])
        assert bare.probe("driver-1").words == "SUBMITTED"


def manager(*urls: str) -> StandaloneManager:
    return StandaloneManager("spark://m1:7077,m2:7077", urls, "4.3.0")


def closed_port() -> str:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{asked.getsockname()[1]}"


def test_driver_is_submitted_to_the_master_that_leads_and_never_supervised() -> None:
    seen: list[dict[str, Any]] = []

    def leads(path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        assert path == "/v1/submissions/create"
        seen.append(json.loads(body))
        return 200, {"success": True, "submissionId": "driver-7"}

    with master(lambda *_: (200, STANDBY)) as standby, master(leads) as leader:
        assert manager(closed_port(), standby, leader).submit(SUBMISSION) == "driver-7"

    (request,) = seen
    assert request["sparkProperties"]["spark.driver.supervise"] == "false"
    assert request["sparkProperties"]["spark.submit.deployMode"] == "cluster"
    assert request["environmentVariables"][VARIABLE] == SUBMISSION.startup
    assert request["environmentVariables"]["A"] == "b"
    assert request["appArgs"][-1] == SUBMISSION.bootstrap_url
    assert "spark.executor.memory=2g" in request["appArgs"]
    assert SUBMISSION.startup not in str(request["appArgs"]), "the token is in no command line"


def test_nothing_was_submitted_when_no_master_is_there_or_leads() -> None:
    with (
        master(lambda *_: (200, STANDBY)) as standby,
        pytest.raises(ClusterUnreachableError, match="STANDBY"),
    ):
        manager(closed_port(), standby).submit(SUBMISSION)


def test_refusal_of_a_master_that_leads_is_final() -> None:
    refusal = {"success": False, "message": "Malformed request: no such property"}
    with master(lambda *_: (400, refusal)) as leader, pytest.raises(SubmissionRefusedError, match="no such"):
        manager(leader).submit(SUBMISSION)


def test_master_that_hangs_up_may_have_taken_the_driver_and_no_other_is_asked() -> None:
    asked: list[str] = []

    def other(path: str, _: bytes) -> tuple[int, dict[str, Any]]:
        asked.append(path)
        return 200, {"success": True, "submissionId": "driver-8"}

    with (
        master(lambda *_: None) as broken,
        master(other) as leader,
        pytest.raises(SubmissionUnknownError),
    ):
        manager(broken, leader).submit(SUBMISSION)
    assert not asked


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ("SUBMITTED", DriverState.WAITING),
        ("RUNNING", DriverState.RUNNING),
        ("FINISHED", DriverState.GONE),
        ("FAILED", DriverState.GONE),
        ("KILLED", DriverState.GONE),
        ("ERROR", DriverState.GONE),
        ("SOMETHING_NEW", DriverState.UNKNOWN),
    ],
)
def test_state_of_a_driver_is_read_from_the_master_that_leads(said: str, state: DriverState) -> None:
    told = {"success": True, "driverState": said, "submissionId": "driver-7", "message": None}
    with master(lambda *_: (200, STANDBY)) as standby, master(lambda *_: (200, told)) as leader:
        report = manager(standby, leader).probe("driver-7")

    assert (report.state, report.words) == (state, said)


STACK = "Exception from the cluster:\njava.io.IOException: no jar\n\tat a.B.run(B.scala:1)\n\tat a.C"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (None, "FAILED"),
        (STACK, "FAILED: java.io.IOException: no jar"),
        ("Something else", "FAILED: Something else"),
    ],
)
def test_failed_driver_is_told_with_the_error_and_where_its_log_is(message: str | None, why: str) -> None:
    told = {
        "success": True,
        "driverState": "FAILED",
        "submissionId": "driver-7",
        "workerId": "worker-9",
        "workerHostPort": "10.0.0.3:7078",
        "message": message,
    }

    with master(lambda *_: (200, told)) as url:
        report = manager(url).probe("driver-7")

    where = "its log is driver-7/stderr in the work folder of worker 10.0.0.3:7078, whose web pages show it"
    assert (report.state, report.words) == (DriverState.GONE, f"{why}; {where}")


def test_driver_that_the_leading_master_does_not_know_is_gone() -> None:
    told = {"action": "SubmissionStatusResponse", "success": False, "submissionId": "driver-7"}
    with master(lambda *_: (200, told)) as leader:
        assert manager(leader).probe("driver-7").state is DriverState.GONE


@pytest.mark.parametrize("state", ["STANDBY", "RECOVERING", "COMPLETING_RECOVERY"])
def test_nothing_is_known_of_a_driver_while_no_master_leads(state: str) -> None:
    told = {"success": False, "submissionId": "driver-7", "message": f"Exception: not alive: {state}"}
    with master(lambda *_: (200, told)) as one:
        assert manager(closed_port(), one).probe("driver-7").state is DriverState.UNKNOWN
    assert manager(closed_port()).probe("driver-7").state is DriverState.UNKNOWN


def test_kill_is_asked_of_the_master_that_leads() -> None:
    asked: list[str] = []

    def leads(path: str, _: bytes) -> tuple[int, dict[str, Any]]:
        asked.append(path)
        return 200, {"success": True, "submissionId": "driver-7"}

    with master(lambda *_: (200, STANDBY)) as standby, master(leads) as leader:
        manager(standby, leader).kill("driver-7")
        assert asked == ["/v1/submissions/kill/driver-7"]
        with pytest.raises(ClusterUnreachableError):
            manager(standby, closed_port()).kill("driver-7")
