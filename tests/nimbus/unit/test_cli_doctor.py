"""The doctor's verdicts, one row for each."""

from __future__ import annotations

import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from nimbus.cli.doctor import Level, host, stores
from nimbus.cli.doctor.stores import zookeeper
from nimbus.config.sections import StorageSection, WorkerSection
from nimbus.worker.host.identity import own_process
from nimbus.worker.pool.folder import ExecutorFolder
from tests.leader.integration.test_tls import Authority


@pytest.mark.parametrize(
    ("skew_s", "verdict"),
    [
        (0.0, Level.OK),
        (-4.9, Level.OK),
        (5.0, Level.WARN),
        (-60.0, Level.WARN),
        (300.0, Level.FAIL),
    ],
)
def test_clock_skew(skew_s: float, verdict: Level) -> None:
    assert stores.judge_skew(skew_s).verdict is verdict


@pytest.mark.parametrize(("free", "verdict"), [(6, Level.OK), (4, Level.WARN), (0, Level.FAIL)])
def test_disk(free: int, verdict: Level, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": free << 30})
    monkeypatch.setattr(host.shutil, "disk_usage", lambda _place: usage)

    assert host.disk(tmp_path / "not" / "made" / "yet").verdict is verdict


@pytest.mark.parametrize(
    ("worker", "free_gib", "told", "verdict"),
    [
        ({"idle_jvms": 0}, 64, "off (worker.idle_jvms)", Level.OK),
        ({"master": "spark://h:7077"}, 64, "none: its master is not local", Level.OK),
        ({}, 2, "none: 2.0 GiB of memory are available, 2.4 GiB would be needed", Level.WARN),
        ({}, 64, "up to 2 idle ones", Level.OK),
    ],
)
def test_kept_jvms(
    worker: dict[str, object],
    free_gib: int,
    told: str,
    verdict: Level,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nimbus.worker.host.free_room.available_memory", lambda: free_gib << 30)
    section = WorkerSection.model_validate({"id": "w1", "work_dir": "/w", **worker})

    found = host.kept_jvms(SimpleNamespace(worker=section))  # type: ignore[arg-type]

    assert (found.detail, found.verdict) == (told, verdict)


def test_executor(tmp_path: Path) -> None:
    section = WorkerSection.model_validate({"id": "w1", "work_dir": str(tmp_path / "not" / "made" / "yet")})
    settings = SimpleNamespace(worker=section)

    def found() -> tuple[str, Level]:
        made = host.executor(settings)  # type: ignore[arg-type]
        return made.detail, made.verdict

    assert found() == ("none: the next pooled task starts one", Level.OK)

    lock = ExecutorFolder.new(section.work_dir).lock.take(own_process())

    assert found() == (f"pid {os.getpid()}", Level.OK)
    assert lock is not None
    os.close(lock)
    assert found() == ("none: the next pooled task starts one", Level.OK)


def test_executor_is_not_known_to_a_user_who_may_not_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_work_dir: Path) -> Iterator[ExecutorFolder]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(ExecutorFolder, "all_in", refused)
    section = WorkerSection.model_validate({"id": "w1", "work_dir": str(tmp_path)})

    found = host.executor(SimpleNamespace(worker=section))  # type: ignore[arg-type]

    assert (found.detail, found.verdict) == (f"{tmp_path}: Permission denied", Level.WARN)
    assert found.advice == "ask as the worker's user"


@contextmanager
def _answering(*parts: bytes) -> Iterator[str]:
    """A server that answers one connection with these parts, with a pause between them."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(16)
                connection.sendall(parts[0])
                for part in parts[1:]:
                    threading.Event().wait(0.2)
                    connection.sendall(part)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join(60)


@pytest.mark.parametrize(
    ("text", "verdict", "detail"),
    [
        (b"Zookeeper version: 3.9\nMode: leader\n", Level.OK, "answers, leader"),
        (b"srvr is not executed because it is not in the whitelist.\n", Level.OK, "answers"),
        (b"This ZooKeeper instance is not currently serving requests\n", Level.FAIL, "has no quorum"),
        (b"HTTP/1.1 400 Bad Request\r\n", Level.FAIL, "does not answer as ZooKeeper does"),
    ],
)
def test_a_zookeeper_server(text: bytes, verdict: Level, detail: str) -> None:
    with _answering(text) as server:
        (finding,) = zookeeper(f"{server}/chroot")

    assert (finding.verdict, finding.detail) == (verdict, detail)


def test_a_zookeeper_server_whose_answer_comes_in_pieces() -> None:
    with _answering(b"Zookeeper version: 3.9\n", b"Mode: leader\n") as server:
        (finding,) = zookeeper(server)

    assert (finding.verdict, finding.detail) == (Level.OK, "answers, leader")


def test_one_zookeeper_server_of_three_that_is_down_is_a_warning() -> None:
    with (
        socket.socket() as closed,
        _answering(b"Mode: leader\n") as one,
        _answering(b"Mode: follower\n") as two,
    ):
        closed.bind(("127.0.0.1", 0))  # bound and not listening, so it refuses
        down = f"127.0.0.1:{closed.getsockname()[1]}"

        found = {f.check.split()[1]: f.verdict for f in zookeeper(f"{one},{down},{two}")}

    assert found == {one: Level.OK, down: Level.WARN, two: Level.OK}


@pytest.mark.parametrize(("needed", "verdict"), [(True, Level.FAIL), (False, Level.WARN)])
def test_java_that_is_missing_fails_where_it_is_needed_with_advice(
    needed: bool, verdict: Level, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nimbus import java

    def missing() -> None:
        raise java.JavaMissingError(("PATH: has no executable `java`",))

    monkeypatch.setattr(java, "find_java", missing)

    finding = host.java(needed=needed)

    assert finding.verdict is verdict
    assert "JAVA_HOME" in finding.advice


class _Late(BaseHTTPRequestHandler):
    """A server whose clock is ten minutes behind."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.end_headers()

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(time.time() - 600, usegmt=True)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_clock_is_compared_over_tls_of_an_authority_that_only_s3_knows(tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Late)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Authority(tmp_path, "own").certificate("s3"))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        found = stores.clock(
            StorageSection(bucket="bucket", endpoint_url=f"https://127.0.0.1:{server.server_port}")
        )
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    assert found.verdict is Level.FAIL
    assert found.detail.startswith("60")  # 600 s, and what the handshake takes


def test_clock_is_compared_with_aws(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def get(url: str, **_: object) -> SimpleNamespace:
        asked.append(url)
        return SimpleNamespace(headers={"date": formatdate(time.time() + 600, usegmt=True)})

    monkeypatch.setattr("httpx.get", get)

    assert stores.clock(StorageSection(bucket="bucket", region="eu-west-1")).verdict is Level.FAIL
    assert asked == ["https://s3.eu-west-1.amazonaws.com"]
