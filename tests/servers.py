"""Fixtures with real servers: a ZooKeeper and an S3 server for all processes of a test run, or for one test.

The process that started pytest starts this file as a program, which starts a shared server when a test first
asks for it. The kernel kills the servers with the program, and the program with pytest, however that ends.
A plug-in of `tests/conftest.py`.
"""

from __future__ import annotations

import socket
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from nimbus.localstack.ports import LOOPBACK, free_port
from nimbus.localstack.process import ManagedProcess
from nimbus.localstack.s3 import S3Server
from nimbus.localstack.zookeeper import ZooKeeperServer

Server = TypeVar("Server", bound=ManagedProcess)

_PATIENCE_S = 150.0
"""How long a test waits for a shared server: longer than the starts of both may take."""


class SharedServers(ManagedProcess):
    """The program, as the process that starts and ends it sees it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="shared servers", log=folder / "servers.log")
        self.folder, self.port = folder, free_port()

    def _command(self) -> Sequence[str]:
        return [sys.executable, "-P", __file__, str(self.folder), str(self.port)]

    def _answers(self) -> bool:
        try:
            return _request(self.port, "name") == "servers"
        except OSError:
            return False


class SharedZooKeeper(ZooKeeperServer):
    """A ZooKeeper that the program started: a test cannot stop or pause it."""

    running = True


class SharedS3(S3Server):
    """An S3 server that the program started: a test cannot stop or pause it."""

    running = True


_STARTED = pytest.StashKey[SharedServers]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell one of xdist's workers where the program of this run is."""
    servers = _started(node.config)
    node.workerinput["shared_servers"] = (str(servers.folder), servers.port)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the program, and the servers with it."""
    if (servers := config.stash.get(_STARTED, None)) is not None:
        servers.kill()


def _started(config: Any) -> SharedServers:
    if _STARTED not in config.stash:
        servers = SharedServers(config._tmp_path_factory.getbasetemp() / "servers")
        servers.start()
        config.stash[_STARTED] = servers
    return config.stash[_STARTED]


@pytest.fixture(scope="session")
def shared_servers(pytestconfig: pytest.Config, long_lived: Any) -> tuple[Path, int]:
    """Folder and port of the program."""
    if (given := getattr(pytestconfig, "workerinput", None)) is not None:
        folder, port = given["shared_servers"]
        return Path(folder), port
    servers = _started(pytestconfig)
    long_lived.processes.append(servers)
    return servers.folder, servers.port


@pytest.fixture(scope="session")
def zookeeper(shared_servers: tuple[Path, int], long_lived: Any) -> ZooKeeperServer:
    """A shared real ZooKeeper: use it only below `zk_root`, and do not stop or pause it."""
    folder, port = _shared(shared_servers, "zookeeper", long_lived)
    return SharedZooKeeper(folder, port)


@pytest.fixture
def zk_root(zookeeper: ZooKeeperServer) -> str:
    """This test's own path, such as `/t-0f3c...`, which does not exist yet."""
    return f"/t-{uuid.uuid4().hex}"


@pytest.fixture(scope="session")
def s3_server(shared_servers: tuple[Path, int], long_lived: Any) -> S3Server:
    """A shared real S3 server: use only `s3_bucket`, and do not stop or pause it."""
    folder, port = _shared(shared_servers, "s3", long_lived)
    return SharedS3(folder, port)


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """The name of this test's own empty bucket."""
    name = f"t-{uuid.uuid4().hex}"
    s3_server.create_bucket(name)
    return name


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[ZooKeeperServer]:
    """A running ZooKeeper for this test only, which it may stop, kill, pause and restart."""
    yield from _served(ZooKeeperServer(tmp_path / "own-zookeeper"))


@pytest.fixture
def own_s3(tmp_path: Path) -> Iterator[S3Server]:
    """A running S3 server for this test only, which it may stop, kill, pause and restart."""
    yield from _served(S3Server(tmp_path / "own-s3"))


def _served(server: Server) -> Iterator[Server]:
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _shared(servers: tuple[Path, int], name: str, long_lived: Any) -> tuple[Path, int]:
    """The data folder and the port of a shared server, which is started if it does not run yet."""
    folder, port = servers
    answer = _request(port, name)
    if not answer:
        raise RuntimeError(f"the shared server {name} did not start; see {folder / 'servers.log'}")
    for program in long_lived.processes:
        if isinstance(program, SharedServers):  # no xdist, so the servers descend from this process
            descendants = psutil.Process(program.pid).children(recursive=True)
            long_lived.pids.update(process.pid for process in descendants)
    return folder / name, int(answer)


def _request(port: int, name: str) -> str:
    """What the program answers; empty if it failed. Its log says why."""
    with socket.create_connection((LOOPBACK, port), timeout=_PATIENCE_S) as connection:
        connection.sendall(f"{name}\n".encode())
        return connection.makefile().read()


def _serve(folder: Path, port: int) -> None:
    """Answer requests until the process is killed."""
    servers = {"zookeeper": ZooKeeperServer(folder / "zookeeper"), "s3": S3Server(folder / "s3")}
    with socket.create_server((LOOPBACK, port)) as listener:
        while True:
            connection, _ = listener.accept()
            with connection:
                server = servers.get(connection.makefile().readline().strip())
                if server is not None and not server.running:
                    server.start()
                connection.sendall(b"servers" if server is None else str(server.port).encode())


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), int(sys.argv[2]))
