"""A real ZooKeeper and a real S3 server: start, stop, kill, and the surviving data."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from kazoo.client import KazooClient

from nimbus.localstack.errors import LocalStackError, PortBusyError, ProcessStartError, ProcessStateError
from nimbus.localstack.process import ManagedProcess
from nimbus.localstack.s3 import S3Server
from nimbus.localstack.zookeeper import ZooKeeperServer

Eventually = Callable[..., None]


@contextmanager
def _client(server: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(hosts=server.hosts)
    client.start(timeout=60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def _s3(server: S3Server, secret_key: str | None = None) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=server.endpoint_url,
        region_name="us-east-1",
        aws_access_key_id=server.access_key,
        aws_secret_access_key=secret_key or server.secret_key,
        config=Config(
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )


def test_zookeeper_keeps_data_and_address_when_killed_and_started_again(
    own_zookeeper: ZooKeeperServer,
) -> None:
    hosts = own_zookeeper.hosts
    with _client(own_zookeeper) as client:
        client.create("/kept", b"value")

    own_zookeeper.kill()
    assert not own_zookeeper.running
    own_zookeeper.start()

    assert own_zookeeper.hosts == hosts
    with _client(own_zookeeper) as client:
        assert client.get("/kept")[0] == b"value"


def test_zookeeper_client_comes_back_by_itself_when_the_server_restarts(
    own_zookeeper: ZooKeeperServer,
) -> None:
    with _client(own_zookeeper) as client:
        client.create("/mine", b"", ephemeral=True)
        session = client.client_id
        own_zookeeper.stop()
        own_zookeeper.start()

        # It may not have noticed the lost connection yet.
        assert client.retry(client.exists, "/mine")
        assert client.client_id == session


def test_zookeeper_answers_nothing_while_paused_and_goes_on_afterwards(
    own_zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    own_zookeeper.pause()
    assert own_zookeeper.ask("ruok") == b""
    assert own_zookeeper.running

    own_zookeeper.resume()
    eventually(lambda: own_zookeeper.ask("ruok") == b"imok", what="ZooKeeper answers again")


def test_paused_zookeeper_is_stopped_without_being_killed(own_zookeeper: ZooKeeperServer) -> None:
    own_zookeeper.pause()
    process = psutil.Process(own_zookeeper.pid)

    own_zookeeper.stop()

    assert not process.is_running()
    assert "killed" not in own_zookeeper.log_tail()


def test_zookeeper_on_a_busy_port_is_refused(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with pytest.raises(PortBusyError, match=str(zookeeper.port)):
        ZooKeeperServer(tmp_path, zookeeper.port).start()


def test_zookeeper_that_cannot_start_shows_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where its folder should be")

    with pytest.raises(ProcessStartError, match=r"ended with exit status \d+(.|\n)*data") as caught:
        ZooKeeperServer(tmp_path).start()

    assert caught.value.code == "process_start_failed"
    assert caught.value.log == tmp_path / "zookeeper.log"


def test_server_is_not_started_twice(own_s3: S3Server) -> None:
    with pytest.raises(ProcessStateError, match="already runs"):
        own_s3.start()


def test_server_is_refused_on_another_thread_whose_end_would_kill_it(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            S3Server(tmp_path).start()
        except ProcessStateError as exc:
            errors.append(exc)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    assert "from the main thread" in str(errors[0])


def test_servers_die_with_their_parent_when_it_is_killed(tmp_path: Path, eventually: Eventually) -> None:
    program = (
        "import sys; from pathlib import Path; from nimbus.localstack.zookeeper import ZooKeeperServer\n"
        "from nimbus.localstack.s3 import S3Server\n"
        "folder = Path(sys.argv[1]); parts = [ZooKeeperServer(folder / 'z'), S3Server(folder / 's')]\n"
        "for part in parts: part.start()\n"
        "print(*(part.pid for part in parts), flush=True); sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None and parent.stdout is not None
    with parent.stdin, parent.stdout:
        children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(children) == 2
        assert all(child.is_running() for child in children)

        parent.send_signal(signal.SIGKILL)
        parent.wait()

    eventually(lambda: not any(_alive(child) for child in children), what="both servers are gone")


def _alive(process: psutil.Process) -> bool:
    # A process that is not reaped yet counts as dead: in a container, it may never be reaped.
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_s3_serves_what_it_had_after_it_was_killed_and_started_again(own_s3: S3Server) -> None:
    url = own_s3.endpoint_url
    own_s3.create_bucket("kept")
    _s3(own_s3).put_object(Bucket="kept", Key="a/b", Body=b"value")

    own_s3.kill()
    own_s3.start()

    assert own_s3.endpoint_url == url
    assert _s3(own_s3).get_object(Bucket="kept", Key="a/b")["Body"].read() == b"value"


def test_s3_bucket_can_be_made_before_and_while_it_runs_and_twice(tmp_path: Path) -> None:
    server = S3Server(tmp_path)
    server.create_bucket("before")
    server.start()
    try:
        for _ in range(2):
            server.create_bucket("while-it-runs")
        names = {bucket["Name"] for bucket in _s3(server).list_buckets()["Buckets"]}
    finally:
        server.stop()

    assert names == {"before", "while-it-runs"}


def test_s3_refuses_a_wrong_secret(s3_server: S3Server, s3_bucket: str) -> None:
    with pytest.raises(ClientError, match="SignatureDoesNotMatch"):
        _s3(s3_server, "another-secret-key").list_objects_v2(Bucket=s3_bucket)


def test_s3_secret_is_not_in_its_arguments(own_s3: S3Server) -> None:
    assert not [word for word in psutil.Process(own_s3.pid).cmdline() if own_s3.secret_key in word]


@pytest.mark.parametrize(
    ("access", "secret"), [("short", "long-enough"), ("long-enough", 'with"quote,'), ("", "")]
)
def test_s3_keys_the_server_could_not_use_are_refused(tmp_path: Path, access: str, secret: str) -> None:
    with pytest.raises(LocalStackError, match="at least 8 characters"):
        S3Server(tmp_path, access_key=access, secret_key=secret)


@pytest.mark.parametrize("name", ["../x", "Upper", "ab", "with/slash", ""])
def test_s3_bucket_name_that_s3_does_not_allow_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LocalStackError, match="is not a bucket name"):
        S3Server(tmp_path).create_bucket(name)

    assert not (tmp_path / "objects").exists()


class _Mute(ManagedProcess):
    """A server that runs and never answers."""

    def _command(self) -> list[str]:
        return ["sh", "-c", "echo thinking; exec sleep 600"]

    def _answers(self) -> bool:
        # Even on a slow machine, it has printed something before the time limit.
        while self.running and b"thinking" not in self.log.read_bytes():
            time.sleep(0.02)
        return False


class _Busy(_Mute):
    """Many threads that count, so that some of them are always runnable."""

    def _command(self) -> list[str]:
        program = (
            "import threading\n"
            "def count():\n"
            "    while True: sum(range(1000))\n"
            "threads = [threading.Thread(target=count) for _ in range(8)]\n"
            "[thread.start() for thread in threads]\n"
            "print('thinking', flush=True)\n"
        )
        return [sys.executable, "-c", program]

    def _answers(self) -> bool:
        return b"thinking" in self.log.read_bytes()


def test_paused_child_stands_with_all_its_threads_when_pause_returns(tmp_path: Path) -> None:
    child = _Busy(name="busy", log=tmp_path / "log")
    child.start()
    try:
        tasks = Path(f"/proc/{child.pid}/task")
        for _ in range(20):
            child.pause()
            stats = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()]
            assert set(stats) == {"T"}
            child.pause()  # a second call has no effect
            child.resume()
        assert child.running
    finally:
        child.kill()


def test_child_that_never_answers_is_given_up_and_ended(tmp_path: Path) -> None:
    child = _Mute(name="mute", log=tmp_path / "log", start_deadline=timedelta(seconds=1))

    with pytest.raises(ProcessStartError, match=r"mute did not answer within 1 s(.|\n)*thinking"):
        child.start()

    assert not child.running


def test_child_whose_program_is_missing_says_so(tmp_path: Path) -> None:
    class _Missing(_Mute):
        def _command(self) -> list[str]:
            return [str(tmp_path / "no-such-program")]

    with pytest.raises(ProcessStartError, match=r"exit status 127(.|\n)*no-such-program: No such file"):
        _Missing(name="missing", log=tmp_path / "log").start()
