"""Nimbus over TLS to a real ZooKeeper that requires a certificate: scheduler, sentinel, runner, doctor."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from click.testing import CliRunner
from kazoo.client import KazooClient

from leader import ElectionConfigError, ZooKeeperSession
from nimbus.bootstrap.resources import zookeeper_config
from nimbus.bootstrap.worker import _board_connection
from nimbus.cli.main import cli
from nimbus.config import Settings, load_settings
from nimbus.localstack.ports import free_port
from nimbus.localstack.s3 import S3Server
from nimbus.worker.attempt.connections import Connections, open_board
from tests.fault_proxy.proxy import FaultProxy
from tests.leader.integration.test_tls import PASSWORD, Stage

Eventually = Callable[..., None]
LONG = timedelta(seconds=30)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, long_lived: Any) -> Iterator[Stage]:
    made = Stage(tmp_path_factory.mktemp("tls"))
    made.start()
    long_lived.processes.append(made)
    yield made
    made.stop()


@pytest.fixture
def document(
    stage: Stage, tmp_path: Path, s3_server: S3Server, s3_bucket: str, zk_root: str
) -> dict[str, Any]:
    return {
        "cluster": {"root": zk_root},
        "zookeeper": {
            "hosts": stage.secure_hosts,
            "session_timeout": "30s",
            "tls": True,
            "tls_ca_file": str(stage.ours.file),
            "tls_cert_file": str(stage.client),
        },
        "storage": {
            "endpoint_url": s3_server.endpoint_url,
            "bucket": s3_bucket,
            "access_key_id": s3_server.access_key,
            "secret_access_key": s3_server.secret_key,
        },
        "supervision": {"host_lost_after": "30s"},
        "scheduler": {"id": "s1", "port": free_port(), "state_dir": str(tmp_path / "state")},
        "worker": {"embedded": False},
        "log": {"format": "json"},
    }


def written(document: dict[str, Any], folder: Path) -> Path:
    file = folder / "nimbus.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def settings_of(document: dict[str, Any], folder: Path) -> Settings:
    return load_settings(written(document, folder), {})


def leads(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/metrics")
        return b"nimbus_leader 1.0" in connection.getresponse().read()
    except OSError:
        return False
    finally:
        connection.close()


class Daemon:
    """`nimbus scheduler`, as a process."""

    def __init__(self, document: dict[str, Any], folder: Path) -> None:
        self.log, self.port = folder / "log", document["scheduler"]["port"]
        config = str(written(document, folder))
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "nimbus.cli.main", "scheduler", "--config", config],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )

    def sentinels(self) -> list[psutil.Process]:
        children = psutil.Process(self.process.pid).children()
        return [each for each in children if any(word.endswith("leader/sentinel") for word in each.cmdline())]

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)


@pytest.fixture
def daemon(document: dict[str, Any], tmp_path: Path) -> Iterator[Callable[[], Daemon]]:
    made: list[Daemon] = []

    def start() -> Daemon:
        made.append(Daemon(document, tmp_path))
        return made[-1]

    yield start
    for each in made:
        each.stop()


def test_scheduler_leads_over_tls_and_its_sentinel_ends_its_session_when_it_is_killed(
    stage: Stage, document: dict[str, Any], daemon: Callable[[], Daemon], eventually: Eventually
) -> None:
    scheduler = daemon()
    eventually(lambda: leads(scheduler.port), within_s=60, what="it leads")
    (sentinel,) = scheduler.sentinels()

    scheduler.process.kill()

    client = KazooClient(stage.hosts)
    client.start(timeout=30)
    try:
        queue = f"{document['cluster']['root']}/leader-lock"
        eventually(lambda: client.get_children(queue) == [], within_s=20, what="before 30 s: no latch")
    finally:
        client.stop()
        client.close()
    eventually(lambda: not sentinel.is_running())


def test_sentinel_is_off_and_says_so_when_the_key_has_a_password(
    stage: Stage, document: dict[str, Any], daemon: Callable[[], Daemon], eventually: Eventually
) -> None:
    document["zookeeper"] |= {
        "tls_key_file": str(stage.client.with_suffix(".key")),
        "tls_key_password": PASSWORD,
    }
    scheduler = daemon()

    eventually(lambda: leads(scheduler.port), within_s=60, what="it leads")

    assert scheduler.sentinels() == []
    said = scheduler.log.read_text()
    assert "sentinel_unavailable" in said
    assert "key_password" in said
    assert PASSWORD not in said


@pytest.mark.parametrize("locked", [False, True])
def test_runner_reaches_its_board_over_tls(
    stage: Stage, document: dict[str, Any], tmp_path: Path, locked: bool
) -> None:
    if locked:
        document["zookeeper"] |= {
            "tls_key_file": str(stage.client.with_suffix(".key")),
            "tls_key_password": PASSWORD,
        }
    connection = _board_connection(settings_of(document, tmp_path))

    opened = open_board(Connections(board=connection))

    opened.close()


def test_server_whose_name_does_not_fit_is_trusted_only_without_that_check(
    stage: Stage, document: dict[str, Any], tmp_path: Path
) -> None:
    with FaultProxy([("127.0.0.1", stage.secure_port)], host="127.0.0.9", plain=True) as proxy:
        document["zookeeper"]["hosts"] = proxy.hosts
        refused = CliRunner().invoke(cli, ["doctor", "--config", str(written(document, tmp_path))])
        document["zookeeper"]["tls_verify"] = "no_hostname"
        session = ZooKeeperSession(zookeeper_config(settings_of(document, tmp_path)))
        session.start(LONG)
        session.close(LONG)

    assert refused.exit_code == 1
    assert "TLS" in refused.stdout


def test_doctor_speaks_tls_and_names_a_file_that_is_missing(document: dict[str, Any], tmp_path: Path) -> None:
    well = CliRunner().invoke(cli, ["doctor", "--config", str(written(document, tmp_path))])
    document["zookeeper"]["tls_ca_file"] = "/nowhere/ca.pem"
    ill = CliRunner().invoke(cli, ["doctor", "--config", str(written(document, tmp_path))])

    assert "answers, standalone" in well.stdout
    assert ill.exit_code == 1
    assert "/nowhere/ca.pem" in ill.stdout


def test_file_that_is_missing_is_told_at_the_start(document: dict[str, Any], tmp_path: Path) -> None:
    document["zookeeper"]["tls_cert_file"] = "/nowhere/cert.pem"

    with pytest.raises(ElectionConfigError, match=r"/nowhere/cert\.pem"):
        zookeeper_config(settings_of(document, tmp_path))
