"""Spark Connect without a server: settings of each process, and the end of servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.domain.attempts.slots import ConnectSession
from nimbus.worker.connect import attempt_session, client, server_folder
from nimbus.worker.connect.plan import ConnectPlan
from nimbus.worker.connect.server import LocalServer, LocalServerSettings, RemoteServer
from nimbus.worker.connect.server_folder import ServerRecord
from nimbus.worker.connect.session import (
    MissingPackagesError,
    SessionLine,
    check_packages,
    driver_variables,
    session_url,
)
from nimbus.worker.host import procfs
from nimbus.worker.host.identity import host_id

PORT = 40404
SESSION_ID = "6f1c1d1e-0000-4000-8000-000000000001"
PLAN = ConnectPlan(url=f"sc://localhost:{PORT}", token="t0ken", session_id="s1")
SOON = timedelta(seconds=10)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Replaces a server. It has its own session, and a child."""
    with subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600"], start_new_session=True) as started:
        yield started
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)


def server_of(process: subprocess.Popen[bytes], place: Path, made_of: str = "x") -> ServerRecord:
    ticks = procfs.start_ticks(process.pid)
    assert ticks is not None
    record = ServerRecord(
        pid=process.pid, start_ticks=ticks, host=host_id(), port=PORT, token="t0ken", made_of=made_of
    )
    folder = place / str(PORT)
    folder.mkdir(parents=True)
    server_folder.note_server(folder, record)
    (folder / "in-use").touch()
    return record


def local_server(place: Path, idle_timeout: timedelta = timedelta(minutes=10)) -> LocalServer:
    return LocalServer(
        LocalServerSettings(
            folder=place,
            master="local[2]",
            spark_conf={},
            env={},
            java_home=Path,
            idle_timeout=idle_timeout,
        )
    )


def test_missing_packages_are_named_with_what_installs_them() -> None:
    def find(name: str) -> object:
        if name == "google.rpc":
            raise ModuleNotFoundError(name)
        return None if name == "grpc" else name

    with pytest.raises(MissingPackagesError, match=r"grpcio, googleapis-common-protos\. .*\[connect\]"):
        check_packages(find)


def test_driver_is_given_the_session_in_the_url_and_the_token_beside_it() -> None:
    variables = driver_variables(PLAN)

    assert variables["SPARK_REMOTE"] == f"sc://localhost:{PORT}/;user_id=nimbus;session_id=s1"
    assert variables["SPARK_CONNECT_AUTHENTICATE_TOKEN"] == "t0ken"
    assert "t0ken" not in repr(PLAN)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("sc://spark:1", "sc://spark:1/;use_ssl=true;user_id"),
        ("sc://localhost:1", "sc://localhost:1/;user_id"),
    ],
)
def test_remote_server_is_spoken_to_by_tls_unless_it_is_on_this_host(url: str, told: str) -> None:
    assert session_url(RemoteServer(url, None).plan()).startswith(told)


@pytest.mark.parametrize(
    ("master", "conf", "here"),
    [
        ("local[*]", {}, True),
        ("spark://host:7077", {}, False),
        ("local[*]", {"spark.master": "spark://host:7077"}, False),
    ],
)
def test_server_runs_here_unless_its_master_is_elsewhere(
    tmp_path: Path, master: str, conf: dict[str, str], here: bool
) -> None:
    settings = LocalServerSettings(folder=tmp_path, master=master, spark_conf=conf, env={}, java_home=Path)

    assert settings.runs_here is here


def test_fork_server_imports_what_a_sql_task_needs() -> None:
    program = "from nimbus.worker.fork_server import import_for_connect; import_for_connect(); import sys; "
    program += "sys.exit('nimbus.worker.driver.sql_task' not in sys.modules)"

    subprocess.run([sys.executable, "-I", "-c", program], check=True, timeout=60)


def test_each_plan_has_a_session_of_its_own() -> None:
    remote = RemoteServer("sc://spark:1", "t0ken")

    assert remote.plan().session_id != remote.plan().session_id


def test_remote_session_is_reached_again_only_on_the_server_that_is_configured() -> None:
    remote = RemoteServer("sc://spark:1", "t0ken")
    plan = remote.plan()

    reached = remote.reach(ConnectSession(url=plan.url, session_id=plan.session_id))

    assert reached == plan
    assert remote.reach(ConnectSession(url="sc://other:1/;use_ssl=true", session_id="s1")) is None


def test_session_is_not_released_when_nobody_listens() -> None:
    with socket.socket() as taken:  # bound and not listening, so no other process gets the port
        taken.bind(("127.0.0.1", 0))
        line = SessionLine(ConnectPlan(url=f"sc://localhost:{taken.getsockname()[1]}", token="t"))
        try:
            assert line.release() is False
        finally:
            line.close()


def test_server_file_is_for_its_user_alone(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    server_of(process, tmp_path)

    assert stat.S_IMODE((tmp_path / str(PORT) / "server.json").stat().st_mode) == 0o600


def test_session_is_reached_as_the_folder_of_its_server_says(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    record = server_of(process, tmp_path / "connect")

    plan = server_folder.plan_of(tmp_path, "s1", PLAN.url)

    assert plan is not None
    assert (plan.token, plan.session_id, plan.server) == ("t0ken", "s1", record.id)


def test_session_on_a_server_of_another_host_is_not_reached(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    record = server_of(process, tmp_path / "connect")
    server_folder.note_server(tmp_path / "connect" / str(PORT), replace(record, host="elsewhere"))

    assert server_folder.plan_of(tmp_path, "s1", PLAN.url) is None


def test_server_ends_with_all_of_its_session(tmp_path: Path, process: subprocess.Popen[bytes]) -> None:
    record = server_of(process, tmp_path)

    assert server_folder.end_server(record.id)

    assert [found for found in procfs.living() if found.session == process.pid] == []


def test_server_in_use_is_not_ended_however_old_it_is(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    record = server_of(process, tmp_path)
    servers = local_server(tmp_path)
    used = server_folder.use(tmp_path / str(PORT))
    try:
        os.utime(tmp_path / str(PORT) / "in-use", (0, 0))
        servers.look_after()
        servers.close()
        assert record.lives
    finally:
        os.close(used)


@pytest.mark.parametrize(("made_of", "idle_s", "lives"), [
    ("same", 0.0, True), ("same", 3600.0, False), ("other", 0.0, False),
])  # fmt: skip
def test_unused_server_ends_when_it_was_idle_for_long_or_is_of_other_settings(
    tmp_path: Path, process: subprocess.Popen[bytes], made_of: str, idle_s: float, lives: bool
) -> None:
    servers = local_server(tmp_path)
    record = server_of(process, tmp_path, servers.made_of() if made_of == "same" else "other")
    last_use = time.time() - idle_s
    os.utime(tmp_path / str(PORT) / "in-use", (last_use, last_use))

    servers.look_after()

    assert record.lives is lives
    assert (tmp_path / str(PORT)).exists() is lives


def test_programs_that_a_dead_server_left_end_before_it_is_forgotten(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    server_of(process, tmp_path)
    process.kill()
    process.wait()

    local_server(tmp_path).look_after()

    assert [found for found in procfs.living() if found.session == process.pid] == []
    assert not (tmp_path / str(PORT)).exists()


def test_use_of_a_server_that_was_ended_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        server_folder.use(tmp_path / "gone")


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The session of a driver, before its first request."""
    for name, value in driver_variables(replace(PLAN, session_id=SESSION_ID)).items():
        monkeypatch.setenv(name, value)
    made = client.make_session(tmp_path)
    yield made
    made.stop()


def test_driver_sends_the_servers_id_of_the_session_with_each_request(session: Any) -> None:
    client.bind_session(session, "server's")

    for request in (
        session.client._execute_plan_request_with_metadata(),
        session.client._analyze_plan_request_with_metadata(),
        session.client._config_request_with_metadata(),
    ):
        assert (request.session_id, request.user_context.user_id) == (SESSION_ID, "nimbus")
        assert request.client_observed_server_side_session_id == "server's"


def test_code_finds_the_session_of_its_attempt(session: Any) -> None:
    from pyspark.sql import SparkSession

    assert SparkSession.builder.getOrCreate() is session


def test_progress_is_written_as_that_of_a_spark_of_its_own(tmp_path: Path) -> None:
    @dataclass
    class Stage:
        stage_id: int
        num_tasks: int
        num_completed_tasks: int
        done: bool

    progress = client.ConnectProgress(tmp_path / "progress.json")

    progress([Stage(0, 8, 8, True), Stage(1, 4, 1, False)], 2, "operation", False)

    figures = json.loads((tmp_path / "progress.json").read_text())
    del figures["at"]
    assert figures == {
        "stages": 2,
        "stages_active": 1,
        "tasks_total": 12,
        "tasks_done": 9,
        "tasks_active": 2,
        "tasks_failed": 0,
    }


def test_server_that_does_not_answer_a_release_is_killed_if_it_is_ours(
    tmp_path: Path, process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_session, "release_elsewhere", lambda plan: False)
    record = server_of(process, tmp_path / "connect")
    session = ConnectSession(url=PLAN.url, session_id=SESSION_ID)

    attempt_session.release_left(session, tmp_path / "attempts" / "r.t.1", None)

    assert not record.lives


def test_fork_server_has_all_that_a_channel_needs() -> None:
    """At its end, a driver unloads modules imported after its fork, while gRPC's thread still uses them."""
    program = (
        "import sys\n"
        "from nimbus.worker.connect import client\n"
        "client.import_client()\n"
        "before = set(sys.modules)\n"
        "import grpc\n"
        "grpc.insecure_channel('localhost:1').close()\n"
        "print(sorted(set(sys.modules) - before))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "[]\n"
