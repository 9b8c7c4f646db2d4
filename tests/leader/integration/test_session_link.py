"""A session detects a dead connection, and does not close a live one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta

import pytest

from leader import SessionState, ZooKeeperConfig, ZooKeeperSession, ZooKeeperUnavailableError
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.fault_proxy.proxy import FaultProxy
from tests.leader.integration.scripted_zookeeper import ScriptedZooKeeper

SESSION = timedelta(seconds=3)
BRIEF = timedelta(seconds=1.5)
"""The session timeout of links that die: a test waits for two thirds of it."""
LONG = timedelta(seconds=20)
Eventually = Callable[..., None]
Open = Callable[..., "Client"]


class Client:
    """A session, the calls of its listener, and a thread that always sends a request every 0.1 s."""

    def __init__(self, hosts: str, session_timeout: timedelta = SESSION) -> None:
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=session_timeout))
        self.heard: list[SessionState] = []
        self.session.add_listener(self.heard.append)
        self._stop = threading.Event()
        self._sender = threading.Thread(target=self._send, name="test-sender")

    def start(self, *, in_order: bool = False) -> Client:
        if in_order:  # as configured, because kazoo shuffles the servers
            self.session.client.randomize_hosts = False
        self.session.start(LONG)
        return self

    def keep_sending(self) -> None:
        self._sender.start()

    def close(self) -> None:
        self._stop.set()
        if self._sender.ident is not None:
            self._sender.join(60)
        self.session.close(LONG)

    def _send(self) -> None:
        while not self._stop.wait(0.1):
            if self.session.is_connected:
                self.session.client.exists_async("/")  # without waiting for the answers


@pytest.fixture
def open_client() -> Iterator[Open]:
    made: list[Client] = []

    def make(hosts: str, session_timeout: timedelta = SESSION) -> Client:
        made.append(Client(hosts, session_timeout))
        return made[-1].start()

    yield make
    for client in made:
        client.close()


def _is_cut_while_sending(client: Client, kill_the_link: Callable[[], None], eventually: Eventually) -> None:
    client.keep_sending()
    assert client.session.negotiated_timeout == BRIEF
    kill_the_link()
    # kazoo alone stays CONNECTED until the kernel gives up, after a quarter of an hour or never.
    eventually(lambda: SessionState.SUSPENDED in client.heard, what="the dead link is noticed")


def test_link_that_swallows_everything_is_noticed_though_requests_are_sent_all_the_time(
    zookeeper: ZooKeeperServer, open_client: Open, eventually: Eventually
) -> None:
    """Like a server that is stopped: its kernel acknowledges all that is sent."""
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        client = open_client(proxy.hosts, BRIEF)
        session_id = client.session.session_id
        _is_cut_while_sending(client, proxy.black_hole, eventually)
        proxy.heal()

        eventually(lambda: client.session.is_connected, what="it comes back")
        assert session_id is not None
        client.close()


def test_link_whose_packets_vanish_is_noticed_though_requests_are_sent_all_the_time(
    open_client: Open, eventually: Eventually
) -> None:
    with ScriptedZooKeeper(session_timeout_ms=1500) as server:
        client = open_client(server.hosts, BRIEF)
        _is_cut_while_sending(client, server.vanish, eventually)

        eventually(lambda: client.session.is_connected, what="it comes back over a new connection")
        client.close()


def test_link_is_noticed_when_the_server_has_no_more_room_for_what_we_send(
    open_client: Open, eventually: Eventually
) -> None:
    with ScriptedZooKeeper(session_timeout_ms=1500) as server:
        client = open_client(server.hosts, BRIEF)
        for connection in server._connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.vanish()
        for _ in range(100):
            client.session.client.set_async("/", bytes(100_000))

        eventually(lambda: SessionState.SUSPENDED in client.heard, what="the dead link is noticed")
        client.close()


def test_link_that_is_idle_or_slow_is_left_alone(zookeeper: ZooKeeperServer, open_client: Open) -> None:
    """All at once, because each waits for two sessions."""
    with (
        FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy,
        ScriptedZooKeeper(session_timeout_ms=3000) as server,
    ):
        server.data, server.piece, server.pause_s = bytes(40_000), 1_000, 0.1  # takes 4 s
        idle, slow, big = (open_client(hosts) for hosts in (zookeeper.hosts, proxy.hosts, server.hosts))
        proxy.delay(timedelta(milliseconds=400))  # each way
        slow.keep_sending()
        answer = big.session.client.get_async("/")

        threading.Event().wait(2 * SESSION.total_seconds())

        data, _ = answer.get(timeout=LONG.total_seconds())
        assert len(data) == 40_000, "a big answer that arrives slowly is awaited to its end"
        assert [client.heard for client in (idle, slow, big)] == [[SessionState.CONNECTED]] * 3
        for client in (slow, big):
            client.close()


def test_another_session_id_without_a_word_counts_as_a_loss(
    open_client: Open, eventually: Eventually
) -> None:
    with ScriptedZooKeeper(session_timeout_ms=3000) as server:
        client = open_client(server.hosts)
        server.session_id = 0x20  # as ClickHouse Keeper does
        server.cut()

        eventually(lambda: client.session.session_id == 0x20)
        eventually(lambda: len(client.heard) == 4)
        assert client.heard == [
            SessionState.CONNECTED,
            SessionState.SUSPENDED,
            SessionState.LOST,
            SessionState.CONNECTED,
        ]
        client.close()


def test_session_that_somebody_else_ended_is_lost_and_another_begins(
    zookeeper: ZooKeeperServer, open_client: Open, eventually: Eventually
) -> None:
    client, thief = open_client(zookeeper.hosts), open_client(zookeeper.hosts)
    stolen, password = client.session.client.client_id
    thief.close()
    robber = type(client.session.client)(hosts=zookeeper.hosts, client_id=(stolen, password))
    robber.start(timeout=60)
    robber.stop()
    robber.close()

    eventually(lambda: SessionState.LOST in client.heard)
    eventually(lambda: client.session.is_connected)
    assert client.session.session_id != stolen


def test_one_server_of_three_whose_machine_is_gone_does_not_cost_the_session(
    zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    target = [("127.0.0.1", zookeeper.port)]
    with FaultProxy(target) as first, _full_listener() as gone, FaultProxy(target) as third:
        client = Client(f"{first.hosts},127.0.0.1:{gone},{third.hosts}", timedelta(seconds=6))
        try:
            client.start(in_order=True)
            mine = client.session.session_id
            first.refuse()
            first.black_hole()

            # kazoo alone waits six seconds for `gone`, and the session has only two seconds left by then.
            eventually(lambda: len(client.heard) >= 3, what="it has moved to the third server")
            assert client.heard == [SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.CONNECTED]
            assert client.session.session_id == mine
            assert third.open_connections == 1
        finally:
            client.close()


@contextmanager
def _full_listener() -> Iterator[int]:
    """A port at which the kernel drops new connections, because the accept queue is full."""
    with ExitStack() as open_sockets:
        listener = open_sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = listener.getsockname()[1]
        for _ in range(3):
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


def test_server_that_comes_back_is_found_within_a_second_or_so(
    zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        client = Client(proxy.hosts, timedelta(seconds=20)).start()
        try:
            retry = client.session.client._connection.retry_sleeper
            assert retry.max_delay * (1 + retry.max_jitter) <= 1.0
            proxy.take_down()
            eventually(lambda: client.heard[-1] is SessionState.SUSPENDED)
            proxy.heal()

            eventually(lambda: client.session.is_connected)
        finally:
            client.close()


def test_requests_given_up_without_a_connection_do_not_pile_up(
    zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        client = Client(proxy.hosts, timedelta(seconds=20)).start()
        try:
            proxy.take_down()
            eventually(lambda: client.heard[-1] is SessionState.SUSPENDED)
            kazoo = client.session.client
            for _ in range(100):
                with pytest.raises(ZooKeeperUnavailableError, match=r"set was not sent"):
                    client.session.call(kazoo.set_async, "/", b"", timeout=timedelta(milliseconds=1))

            assert len(kazoo._queue) == 0
        finally:
            client.close()


def test_call_made_without_a_connection_is_carried_out_when_there_is_one_in_time(
    zookeeper: ZooKeeperServer, eventually: Eventually
) -> None:
    with FaultProxy([("127.0.0.1", zookeeper.port)]) as proxy:
        client = Client(proxy.hosts, timedelta(seconds=20)).start()
        try:
            proxy.take_down()
            eventually(lambda: client.heard[-1] is SessionState.SUSPENDED)
            answers: list[object] = []
            caller = threading.Thread(
                target=lambda: answers.append(client.session.call(client.session.client.exists_async, "/"))
            )
            caller.start()
            proxy.heal()
            caller.join(60)

            assert len(answers) == 1
        finally:
            client.close()


def test_closing_wakes_a_call_that_waits_for_a_connection(eventually: Eventually) -> None:
    with ScriptedZooKeeper(session_timeout_ms=20_000) as server:
        client = Client(server.hosts, timedelta(seconds=20)).start()
        server.deaf = True
        server.cut()
        eventually(lambda: client.heard[-1] is SessionState.SUSPENDED)
        refused: list[BaseException] = []

        def call() -> None:
            try:
                client.session.call(client.session.client.exists_async, "/", timeout=timedelta(hours=1))
            except ZooKeeperUnavailableError as exc:
                refused.append(exc)

        caller = threading.Thread(target=call)
        caller.start()
        client.close()
        caller.join(60)

        assert len(refused) == 1


def test_many_requests_put_straight_into_kazoo_never_block_their_sender(eventually: Eventually) -> None:
    with ScriptedZooKeeper(session_timeout_ms=3000) as server:
        client = Client(server.hosts).start()
        try:
            server.deaf = True
            server.cut()
            eventually(lambda: client.heard[-1] is SessionState.SUSPENDED)
            kazoo = client.session.client
            sender = threading.Thread(
                target=lambda: [kazoo.exists_async("/") for _ in range(2000)], daemon=True
            )
            sender.start()
            sender.join(60)

            assert not sender.is_alive()
        finally:
            client.close()


def test_burst_of_requests_is_answered_to_the_last_one(zookeeper: ZooKeeperServer, open_client: Open) -> None:
    kazoo = open_client(zookeeper.hosts).session.client

    asked = [kazoo.exists_async("/") for _ in range(3000)]

    assert all(one.get(timeout=60) is not None for one in asked)
