"""The fault proxy: forwarded and dropped bytes, and what both sides see. With a small server of frames."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from tests.fault_proxy.proxy import Direction, FaultProxy, FaultProxyError, Op

SOON = timedelta(seconds=10)
Eventually = Callable[..., None]


def frame(*words: int, tail: bytes = b"") -> bytes:
    """A frame of 32-bit words and some bytes."""
    payload = b"".join(struct.pack(">i", word) for word in words) + tail
    return struct.pack(">i", len(payload)) + payload


HELLO = frame(0, tail=b"handshake")


class Server:
    """Answers each frame with one that begins with the same word, like ZooKeeper. Records received frames."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.gone = threading.Event()
        """Ignore clients that close connections."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for sock in self._open:
            sock.close() if sock.fileno() < 0 else _hang_up(sock)
        for thread in self._threads:
            thread.join(60)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(sock)
            self._threads.append(threading.Thread(target=self._serve, args=(sock,)))
            self._threads[-1].start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            while (payload := read_frame(sock)) is not None:
                self.got.append(payload)
                sock.sendall(frame(tail=payload[:4]))
            self.gone.set()


def _hang_up(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def read_frame(sock: socket.socket) -> bytes | None:
    """The next frame without its length; None when the other side has closed."""
    head = _exactly(sock, 4)
    return _exactly(sock, struct.unpack(">i", head)[0]) if head else None


def _exactly(sock: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        try:
            more = sock.recv(count - len(data))
        except ConnectionResetError:
            return None
        if not more:
            return None
        data += more
    return data


def xid_of(payload: bytes | None) -> int:
    assert payload is not None, "the connection was cut"
    return int.from_bytes(payload[:4], signed=True)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def proxy(server: Server) -> Iterator[FaultProxy]:
    with FaultProxy([server.address]) as made:
        yield made


@pytest.fixture
def dial(proxy: FaultProxy) -> Iterator[Callable[[], socket.socket]]:
    """Connects through the proxy and shakes hands."""
    made: list[socket.socket] = []

    def connect() -> socket.socket:
        made.append(socket.create_connection((proxy.host, proxy.port), timeout=60))
        made[-1].sendall(HELLO)
        assert xid_of(read_frame(made[-1])) == 0
        return made[-1]

    yield connect
    for sock in made:
        sock.close()


Dial = Callable[[], socket.socket]


def xids(server: Server) -> list[int]:
    """Xids of all requests that the server got, without handshakes."""
    return [xid_of(payload) for payload in server.got if payload != HELLO[4:]]


def test_proxy_passes_requests_and_replies_when_nothing_is_wrong(
    dial: Dial, server: Server, proxy: FaultProxy
) -> None:
    client = dial()
    client.sendall(frame(1, Op.CREATE) + frame(2, Op.MULTI))

    assert [xid_of(read_frame(client)) for _ in range(2)] == [1, 2]
    assert xids(server) == [1, 2]
    traffic = proxy.traffic()
    assert traffic.requests == {Op.HANDSHAKE: 1, Op.CREATE: 1, Op.MULTI: 1}
    assert traffic.bytes_to_server == len(HELLO) + 2 * 12
    assert traffic.bytes_to_client == 3 * 8
    assert traffic.connections == 1


def test_proxy_joins_frames_that_arrive_in_pieces(dial: Dial, server: Server, eventually: Eventually) -> None:
    client = dial()
    for byte in frame(7, Op.EXISTS, tail=b"/path"):
        client.sendall(bytes([byte]))

    assert xid_of(read_frame(client)) == 7
    assert server.got[-1].endswith(b"/path")


def test_proxy_cuts_before_a_request_so_that_the_server_never_sees_it(
    dial: Dial, server: Server, proxy: FaultProxy, eventually: Eventually
) -> None:
    client = dial()
    trap = proxy.cut_before(Op.CREATE)
    client.sendall(frame(1, Op.EXISTS) + frame(2, Op.CREATE) + frame(3, Op.EXISTS))

    assert trap.wait(SOON)
    assert trap.request is not None
    assert (trap.request.xid, trap.request.op) == (2, Op.CREATE)
    eventually(server.gone.is_set, what="the server hears that the connection is gone")
    assert xids(server) in ([1], []), "the connection may be reset before the server has read the first one"
    while read_frame(client) is not None:
        pass  # closed, not hanging


def test_proxy_cuts_after_a_request_so_that_its_reply_is_lost(
    dial: Dial, server: Server, proxy: FaultProxy
) -> None:
    client = dial()
    trap = proxy.cut_after(Op.CREATE)
    client.sendall(frame(1, Op.CREATE))

    assert trap.wait(SOON)
    assert read_frame(client) is None
    assert xids(server) == [1]


def test_proxy_cuts_at_the_chosen_one_of_many_requests_and_only_once(
    dial: Dial, server: Server, proxy: FaultProxy
) -> None:
    client = dial()
    trap = proxy.cut_after(nth=2, when=lambda request: request.mentions("/latch"))
    for xid, path in ((1, b"/latch/a"), (2, b"/other"), (3, b"/latch/b")):
        assert not trap.sprung
        client.sendall(frame(xid, Op.DELETE, tail=path))
        answer = read_frame(client)
        if xid < 3:
            assert xid_of(answer) == xid
    assert answer is None
    assert trap.wait(SOON)

    again = dial()
    again.sendall(frame(4, Op.DELETE, tail=b"/latch/c"))
    assert xid_of(read_frame(again)) == 4
    assert xids(server) == [1, 2, 3, 4]


def test_proxy_loses_the_reply_to_a_handshake(server: Server, proxy: FaultProxy) -> None:
    trap = proxy.cut_after(Op.HANDSHAKE)
    with socket.create_connection((proxy.host, proxy.port), timeout=60) as client:
        client.sendall(HELLO)
        assert read_frame(client) is None
    assert trap.wait(SOON)
    assert server.got == [HELLO[4:]]


def test_healed_proxy_forgets_its_traps(dial: Dial, proxy: FaultProxy) -> None:
    client = dial()
    trap = proxy.cut_before(Op.CREATE)
    proxy.heal()
    client.sendall(frame(1, Op.CREATE))

    assert xid_of(read_frame(client)) == 1
    assert not trap.sprung


def test_black_hole_keeps_the_connection_open_and_cuts_it_when_healed(
    dial: Dial, server: Server, proxy: FaultProxy, eventually: Eventually
) -> None:
    client, idle = dial(), dial()
    proxy.black_hole()
    client.sendall(frame(1, Op.CREATE))
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
    late = socket.create_connection((proxy.host, proxy.port), timeout=60)
    late.sendall(HELLO)
    eventually(lambda: proxy.open_connections == 3, what="a new connection is accepted")
    late.settimeout(0.2)
    with pytest.raises(TimeoutError):
        late.recv(1)

    proxy.heal()

    client.settimeout(10)
    assert read_frame(client) is None
    assert read_frame(late) is None
    late.close()
    idle.sendall(frame(2, Op.EXISTS))
    assert xid_of(read_frame(idle)) == 2, "a connection that lost nothing goes on"
    assert xids(server) == [2]


def test_black_hole_in_one_direction_lets_requests_through(
    dial: Dial, server: Server, proxy: FaultProxy, eventually: Eventually
) -> None:
    client = dial()
    proxy.black_hole(Direction.TO_CLIENT)
    client.sendall(frame(1, Op.CREATE))

    eventually(lambda: xids(server) == [1], what="the server sees the request")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)


def test_black_hole_hides_from_the_server_that_its_client_is_gone(
    dial: Dial, server: Server, proxy: FaultProxy
) -> None:
    client = dial()
    proxy.black_hole()
    client.close()
    assert not server.gone.wait(0.2)

    proxy.heal()

    assert server.gone.wait(60)


def test_stalled_bytes_arrive_when_healed(dial: Dial, server: Server, proxy: FaultProxy) -> None:
    client = dial()
    proxy.stall()
    client.sendall(frame(1, Op.CREATE))
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
    assert xids(server) == []

    proxy.heal()

    client.settimeout(10)
    assert xid_of(read_frame(client)) == 1


def test_delayed_bytes_arrive_later_and_in_order(dial: Dial, server: Server, proxy: FaultProxy) -> None:
    client = dial()
    proxy.delay(timedelta(milliseconds=300), Direction.TO_CLIENT)
    client.sendall(frame(1, Op.CREATE) + frame(2, Op.CREATE))
    client.settimeout(0.1)
    with pytest.raises(TimeoutError):
        client.recv(1)

    client.settimeout(10)
    assert [xid_of(read_frame(client)) for _ in range(2)] == [1, 2]


def test_refusing_proxy_keeps_its_port_and_its_connections_and_listens_again_when_healed(
    dial: Dial, proxy: FaultProxy
) -> None:
    client = dial()
    proxy.refuse()
    proxy.refuse()

    with pytest.raises(ConnectionRefusedError):
        dial()
    client.sendall(frame(1, Op.EXISTS))
    assert xid_of(read_frame(client)) == 1

    proxy.heal()
    dial()


def test_cut_ends_every_connection_and_new_ones_are_served(
    dial: Dial, proxy: FaultProxy, eventually: Eventually
) -> None:
    clients = [dial(), dial()]

    assert proxy.cut() == 2

    assert [read_frame(client) for client in clients] == [None, None]
    dial()
    assert proxy.open_connections == 1


def test_proxy_tells_each_side_that_the_other_hung_up(
    dial: Dial, server: Server, proxy: FaultProxy, eventually: Eventually
) -> None:
    dial().close()

    assert server.gone.wait(60)
    eventually(lambda: proxy.open_connections == 0)


def test_proxy_goes_to_the_next_server_when_one_refuses(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody: tuple[str, int] = closed.getsockname()
    with FaultProxy([nobody, server.address]) as proxy:
        for _ in range(3):
            with socket.create_connection((proxy.host, proxy.port), timeout=60) as client:
                client.sendall(HELLO)
                assert read_frame(client) is not None


def test_proxy_hangs_up_when_no_server_accepts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody: tuple[str, int] = closed.getsockname()
    with (
        FaultProxy([nobody]) as proxy,
        socket.create_connection((proxy.host, proxy.port), timeout=60) as client,
    ):
        assert _exactly(client, 1) is None


def test_plain_proxy_relays_any_bytes_and_a_half_closed_stream() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        FaultProxy([listener.getsockname()], plain=True) as proxy,
        socket.create_connection((proxy.host, proxy.port), timeout=60) as client,
    ):
        ours, _ = listener.accept()
        with ours:
            client.sendall(b"\x00\x00")
            client.shutdown(socket.SHUT_WR)
            assert _exactly(ours, 2) == b"\x00\x00"
            assert ours.recv(1) == b""
            ours.sendall(b"late answer")
            assert _exactly(client, 11) == b"late answer"


def test_four_letter_word_passes_as_it_is(proxy: FaultProxy, server: Server) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        FaultProxy([listener.getsockname()]) as own,
        socket.create_connection((own.host, own.port), timeout=60) as client,
    ):
        ours, _ = listener.accept()
        with ours:
            client.sendall(b"srvr")
            assert _exactly(ours, 4) == b"srvr"


def test_plain_proxy_refuses_a_trap_it_could_not_set(server: Server) -> None:
    with FaultProxy([server.address], plain=True) as proxy, pytest.raises(FaultProxyError, match="plain"):
        proxy.cut_before(Op.CREATE)


def test_proxy_without_targets_or_with_a_trap_before_the_first_is_refused(proxy: FaultProxy) -> None:
    with pytest.raises(FaultProxyError, match="targets is empty"):
        FaultProxy([])
    with pytest.raises(FaultProxyError, match="nth is 0"):
        proxy.cut_after(nth=0)


def test_proxy_on_a_port_in_use_is_refused(server: Server) -> None:
    with pytest.raises(FaultProxyError, match=str(server.address[1])):
        FaultProxy([server.address], port=server.address[1])


def test_closed_proxy_answers_and_can_be_closed_again(proxy: FaultProxy, dial: Dial) -> None:
    client = dial()
    proxy.close()
    proxy.close()

    assert read_frame(client) is None
    assert proxy.open_connections == 0
    with pytest.raises(FaultProxyError, match="started before"):
        proxy.start()
    with pytest.raises(ConnectionRefusedError):
        dial()


def test_condition_may_ask_the_proxy_itself(dial: Dial, proxy: FaultProxy) -> None:
    client = dial()
    trap = proxy.cut_before(when=lambda request: proxy.open_connections == 1)
    client.sendall(frame(1, Op.EXISTS))

    assert trap.wait(SOON)
