"""The sentinel, with real processes that die and a real ZooKeeper."""

from __future__ import annotations

import json
import os
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

import psutil
import pytest
from kazoo.client import KazooClient

from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy, Op
from tests.leader.zookeeper_ensemble import Ensemble
from tests.thorough import sampled, thorough

Eventually = Callable[..., None]

CHILD = Path(__file__).with_name("sentinel_child.py")
FOREVER_S = 40.0
"""A session timeout that no test waits for: a node that disappears earlier was deleted explicitly."""
WAIT_S = 20.0


class Child:
    """The process `sentinel_child.py`, with its output and that of its sentinel."""

    def __init__(self, hosts: str, node: str, folder: Path, timeout_s: float) -> None:
        self.node, self._log = node, folder / "child.log"
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(CHILD), hosts, node, str(timeout_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self._log.read_text()
        said: dict[str, Any] = json.loads(line)
        return said

    def order(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ends(self) -> list[dict[str, Any]]:
        """The sentinel's lines about sessions that it has handled."""
        lines = self._log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and "sentinel_ended" in line]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def make(hosts: str, node: str, timeout_s: float = FOREVER_S) -> Child:
        children.append(Child(hosts, node, tmp_path, timeout_s))
        return children[-1]

    yield make
    for child in children:
        child.kill()
        for stream in (child.process.stdin, child.process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def watcher(zookeeper: ZooKeeperServer) -> Iterator[KazooClient]:
    with connected(zookeeper.hosts) as client:
        yield client


@contextmanager
def connected(hosts: str, **settings: Any) -> Iterator[KazooClient]:
    client = KazooClient(hosts, **settings)
    client.start(timeout=WAIT_S)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def gone_event(client: KazooClient, node: str) -> tuple[threading.Event, list[float]]:
    """Set when an existing node has disappeared, with the time."""
    gone, at = threading.Event(), []

    def look(_event: object) -> None:
        at.append(time.monotonic())
        gone.set()

    assert client.exists(node, watch=look) is not None
    return gone, at


@pytest.fixture
def node(zk_root: str) -> str:
    return f"{zk_root}/latch"


@pytest.mark.parametrize("way", sampled(["kill", "kill-group", "stopped-then-killed", "segfault"], 2))
def test_sentinel_closes_the_session_when_the_process_is_dead(
    way: str,
    start: Callable[..., Child],
    node: str,
    zookeeper: ZooKeeperServer,
    watcher: KazooClient,
    eventually: Eventually,
) -> None:
    child = start(zookeeper.hosts, node)
    session = child.hear()["session"]
    gone, at = gone_event(watcher, node)
    if way == "stopped-then-killed":
        os.kill(child.process.pid, signal.SIGSTOP)

    began = time.monotonic()
    if way == "kill-group":
        os.killpg(child.process.pid, signal.SIGKILL)
    else:
        os.kill(child.process.pid, signal.SIGSEGV if way == "segfault" else signal.SIGKILL)

    assert gone.wait(WAIT_S)
    sys.stdout.write(f"{way}: the node was gone after {(at[0] - began) * 1000:.1f} ms\n")
    eventually(child.ends)
    assert [(end["session"], end["outcome"]) for end in child.ends()] == [(f"{session:#x}", "closed")]


def test_sentinel_closes_the_session_also_when_a_fork_of_the_process_holds_its_files(
    start: Callable[..., Child], node: str, zookeeper: ZooKeeperServer, watcher: KazooClient
) -> None:
    child = start(zookeeper.hosts, node)
    child.hear()
    child.order("fork")
    process = psutil.Process(child.process.pid)
    while not (copies := [each for each in process.children() if "-S" not in each.cmdline()]):
        pass
    gone, _ = gone_event(watcher, node)
    try:
        child.kill()
        assert gone.wait(WAIT_S)
    finally:
        copies[0].kill()


def test_sentinel_does_not_stir_while_the_process_is_only_stopped(
    start: Callable[..., Child],
    node: str,
    zookeeper: ZooKeeperServer,
    watcher: KazooClient,
    eventually: Eventually,
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        child = start(proxy.hosts, node, 1.0)
        child.hear()
        gone, _ = gone_event(watcher, node)
        child.process.send_signal(signal.SIGSTOP)
        before = proxy.traffic()

        assert gone.wait(WAIT_S)  # the server has waited for the session to time out
        threading.Event().wait(1.5)  # more than a session; not a wait for a result

        assert proxy.traffic().connections == before.connections == 1
        child.kill()
        eventually(lambda: proxy.traffic().connections == 2)  # so the count above would have included it
        eventually(child.ends)
        assert [end["outcome"] for end in child.ends()] == ["over"]


def test_sentinel_leaves_with_a_process_that_has_closed_its_session(
    start: Callable[..., Child], node: str, zookeeper: ZooKeeperServer
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        child = start(proxy.hosts, node)
        sentinel = child.hear()["sentinel"]

        child.order("leave")

        assert child.process.wait(WAIT_S) == 3
        assert not psutil.pid_exists(sentinel)
        traffic = proxy.traffic()
        assert (traffic.connections, traffic.requests[Op.CLOSE]) == (1, 1)
        assert child.ends() == []


def test_sentinel_closes_nothing_twice_when_the_process_closed_its_session_and_then_fell(
    start: Callable[..., Child], node: str, zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        child = start(proxy.hosts, node)
        child.hear()

        child.order("die")

        assert child.process.wait(WAIT_S) == 4
        eventually(child.ends)
        assert [end["outcome"] for end in child.ends()] == ["over"]
        assert proxy.traffic().requests[Op.CLOSE] == 1


def test_sentinel_that_is_killed_is_replaced_and_harms_nobody(
    start: Callable[..., Child],
    node: str,
    zookeeper: ZooKeeperServer,
    watcher: KazooClient,
    eventually: Eventually,
) -> None:
    child = start(zookeeper.hosts, node)
    first = child.hear()["sentinel"]

    os.kill(first, signal.SIGKILL)
    second: list[int] = []

    def replaced() -> bool:
        child.order("sentinel")
        second[:] = [child.hear()["sentinel"]]
        return second[0] not in (first, None)

    eventually(replaced, within_s=WAIT_S)
    assert watcher.exists(node) is not None
    gone, _ = gone_event(watcher, node)

    child.kill()

    assert gone.wait(WAIT_S)
    eventually(child.ends)
    assert [end["outcome"] for end in child.ends()] == ["closed"]


def test_sentinel_does_not_end_by_what_ends_its_process(
    start: Callable[..., Child], node: str, zookeeper: ZooKeeperServer, watcher: KazooClient
) -> None:
    child = start(zookeeper.hosts, node)
    sentinel = child.hear()["sentinel"]
    # systemd and terminals signal all processes.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(sentinel, number)
    gone, _ = gone_event(watcher, node)

    child.kill()

    assert gone.wait(WAIT_S)


def test_sentinel_closes_the_newest_session(
    start: Callable[..., Child],
    node: str,
    zookeeper: ZooKeeperServer,
    watcher: KazooClient,
    eventually: Eventually,
) -> None:
    child = start(zookeeper.hosts, node)
    first = child.hear()
    thief = (first["session"], bytes.fromhex(first["password"]))
    with connected(zookeeper.hosts, client_id=thief):
        pass  # attaches to the session and closes it: for the child it has expired
    second = child.hear()
    assert second["session"] != first["session"]
    gone, _ = gone_event(watcher, node)

    child.kill()

    assert gone.wait(WAIT_S)
    eventually(child.ends)
    assert [end["session"] for end in child.ends()] == [f"{second['session']:#x}"]


@pytest.mark.parametrize("trouble", ["killed", "paused"])
def test_sentinel_closes_the_session_once_the_server_is_back(
    trouble: str,
    start: Callable[..., Child],
    node: str,
    zookeeper: ZooKeeperServer,
    watcher: KazooClient,
    eventually: Eventually,
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        child = start(proxy.hosts, node)
        child.hear()
        proxy.stall()

        child.kill()

        eventually(lambda: proxy.traffic().connections == 2, what="the sentinel waits for an answer")
        if trouble == "killed":
            proxy.take_down()
        proxy.heal()
        eventually(child.ends, within_s=FOREVER_S / 2)
        assert [end["outcome"] for end in child.ends()] == ["closed"]
        assert watcher.exists(node) is None


def test_sentinel_asks_again_when_the_answer_was_lost(
    start: Callable[..., Child],
    node: str,
    zookeeper: ZooKeeperServer,
    watcher: KazooClient,
    eventually: Eventually,
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        child = start(proxy.hosts, node)
        child.hear()
        trap = proxy.cut_before(Op.CLOSE)

        child.kill()

        assert trap.wait(timedelta(seconds=WAIT_S))
        eventually(child.ends)
        assert [end["outcome"] for end in child.ends()] == ["closed"]
        assert watcher.exists(node) is None


@pytest.mark.parametrize("trouble", ["refuse", "black_hole"])
def test_sentinel_does_not_wait_for_a_server_that_is_not_there(
    trouble: str,
    start: Callable[..., Child],
    node: str,
    zookeeper: ZooKeeperServer,
    watcher: KazooClient,
    eventually: Eventually,
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as dead:
        child = start(f"{dead.hosts},{zookeeper.hosts}", node)
        child.hear()
        gone, _ = gone_event(watcher, node)
        getattr(dead, trouble)()

        child.kill()

        assert gone.wait(FOREVER_S / 4)
        eventually(child.ends)
        assert child.ends()[0]["outcome"] in ("closed", "over")  # over: the answer to the close was lost


@thorough
def test_sentinel_closes_the_session_at_another_server_of_the_ensemble_when_one_hangs(
    start: Callable[..., Child], node: str, tmp_path: Path, eventually: Eventually
) -> None:
    ensemble = Ensemble(tmp_path / "ensemble")
    ensemble.start()
    try:
        child = start(ensemble.hosts, node)
        session = f"{child.hear()['session']:#x}".encode()
        followers = [server for server in ensemble.servers if server is not ensemble.leader]
        # The server of the child, if it is a follower.
        follower = next((each for each in followers if session in each.ask("cons")), followers[0])
        others = ",".join(server.hosts for server in ensemble.servers if server is not follower)
        with connected(others) as client:
            gone, _ = gone_event(client, node)
            follower.pause()

            child.kill()

            assert gone.wait(FOREVER_S / 4)
            eventually(child.ends)
            assert child.ends()[0]["outcome"] in ("closed", "over")
    finally:
        ensemble.stop()


def test_sentinel_gives_up_when_the_session_cannot_live_any_more(
    start: Callable[..., Child],
    node: str,
    zookeeper: ZooKeeperServer,
    eventually: Eventually,
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        child = start(proxy.hosts, node, 1.0)
        child.hear()
        proxy.take_down()

        child.kill()

        eventually(child.ends, within_s=WAIT_S)
        assert [end["outcome"] for end in child.ends()] == ["gave_up"]


def test_sentinel_program_is_small_and_sees_the_standard_library_alone(
    start: Callable[..., Child], node: str, zookeeper: ZooKeeperServer
) -> None:
    child = start(zookeeper.hosts, node)
    sentinel = psutil.Process(child.hear()["sentinel"])

    assert {"-I", "-S"} <= set(sentinel.cmdline())  # with these it cannot import kazoo
    assert sentinel.num_threads() == 1
    assert sentinel.memory_info().rss < 24 << 20
