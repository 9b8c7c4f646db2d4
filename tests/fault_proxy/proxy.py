"""A TCP proxy that fails on purpose, for tests of whatever speaks ZooKeeper.

It stands between a client and its servers and plays what networks do: connections that break before a
request was sent or after it was carried out, links that swallow everything, slowness, refusal.

    with FaultProxy([("127.0.0.1", 2181)]) as proxy:
        client = KazooClient(hosts=proxy.hosts)
        ...
        trap = proxy.cut_after(Op.CREATE)        # the node is made, the client never hears of it
        assert trap.wait(timedelta(seconds=5))
        proxy.black_hole()                       # the link looks alive, and nothing comes through
        proxy.heal()

One thread, `leader-fault-proxy`, does all the work. Methods may be called by any thread; when one returns,
what it asked for is in force. Linux; loopback unless told otherwise. Not for production.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType

from leader.errors import LeaderError
from tests.fault_proxy.faults import Direction, Flow, Trap
from tests.fault_proxy.frames import Op, Request
from tests.fault_proxy.loop import ProxyLoop

__all__ = ["Direction", "FaultProxy", "FaultProxyError", "Op", "Request", "Traffic", "Trap"]

LOOPBACK = "127.0.0.1"


class FaultProxyError(LeaderError):
    """The proxy cannot listen, or was used in a way that makes no sense."""

    code = "fault_proxy"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What has passed since the proxy was started.

    Args:
        requests: How many by opcode, pings and handshakes included; also those that a trap caught.
        bytes_to_server: Bytes that were sent on.
        bytes_to_client: Bytes that were sent on.
        connections: How many were accepted and joined to a server.
    """

    requests: dict[int, int]
    bytes_to_server: int
    bytes_to_client: int
    connections: int


class FaultProxy:
    """See the module.

    Args:
        targets: Servers, `(host, port)`. Each new connection goes to the next one that accepts it.
        host: Where to listen.
        port: Where to listen; a free one if not given. The same through the object's life.
        plain: The two sides do not speak ZooKeeper. Everything but `cut_before` and `cut_after` works.
    """

    def __init__(
        self,
        targets: Sequence[tuple[str, int]],
        *,
        host: str = LOOPBACK,
        port: int | None = None,
        plain: bool = False,
    ) -> None:
        if not targets:
            raise FaultProxyError("targets is empty; give at least one (host, port)")
        self.host, self._plain = host, plain
        self._listener = _bound(host, port)
        self.port: int = self._listener.getsockname()[1]
        self._loop = ProxyLoop(self._listener, list(targets), framed=not plain)

    @property
    def hosts(self) -> str:
        """Connection string: `127.0.0.1:<port>`."""
        return f"{self.host}:{self.port}"

    def start(self) -> None:
        """Listen. Once only."""
        if self._loop.ran:
            raise FaultProxyError("this proxy was started before; make a new FaultProxy")
        self._listener.listen()
        self._loop.start()

    def close(self) -> None:
        """Cut all connections, listen no more, end the thread. Safe to repeat."""
        self._loop.stop()
        self._listener.close()

    def __enter__(self) -> FaultProxy:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- faults of one request ------------------------------------------------------------------

    def cut_before(
        self, op: int | None = None, *, nth: int = 1, when: Callable[[Request], bool] | None = None
    ) -> Trap:
        """Cut the connection when a request arrives. The server never sees that request.

        Args:
            op: Only requests of this kind; any if not given.
            nth: The first that fits is 1.
            when: Only requests of which this is true. Runs on the proxy's thread: must not wait.
        """
        return self._set_trap(Trap(op=op, nth=_positive(nth), when=when, after=False))

    def cut_after(
        self, op: int | None = None, *, nth: int = 1, when: Callable[[Request], bool] | None = None
    ) -> Trap:
        """Cut the connection when the reply to a request arrives. The client never sees that reply.

        The server has carried the request out, or refused it. Arguments as for `cut_before`.
        """
        return self._set_trap(Trap(op=op, nth=_positive(nth), when=when, after=True))

    def _set_trap(self, trap: Trap) -> Trap:
        if self._plain:
            raise FaultProxyError("a plain proxy knows no requests; leave out plain=True, or use cut()")
        self._loop.run(lambda: self._loop.traps.append(trap))
        return trap

    # --- faults of the line ---------------------------------------------------------------------

    def cut(self) -> int:
        """Cut all connections now; how many there were. Clients may connect again."""
        return self._loop.run(self._loop.cut_all)

    def black_hole(self, direction: Direction = Direction.BOTH) -> None:
        """Swallow all bytes, while connections stay open and new ones are accepted.

        Nobody hears that the other side has gone, either. `heal` cuts what has lost bytes.
        """
        self._set_flow(direction, Flow.SWALLOW)

    def stall(self, direction: Direction = Direction.BOTH) -> None:
        """Hold all bytes back until `heal`, then deliver them, as retransmission does after an outage."""
        self._set_flow(direction, Flow.HOLD)

    def delay(self, by: timedelta, direction: Direction = Direction.BOTH) -> None:
        """Let bytes arrive this much later, in order. Zero ends it for those that come."""

        def change() -> None:
            for way in direction.ways:
                self._loop.weather.delay_s[way] = by.total_seconds()

        self._loop.run(change)

    def refuse(self) -> None:
        """Refuse new connections, as a machine does on which no server runs. Those that stand remain."""
        self._loop.run(self._loop.refuse)

    def heal(self) -> None:
        """End all faults: no traps, everything passes, new connections are accepted."""
        self._loop.run(self._loop.heal)

    def _set_flow(self, direction: Direction, flow: Flow) -> None:
        def change() -> None:
            for way in direction.ways:
                self._loop.weather.flow[way] = flow

        self._loop.run(change)

    # --- looking ------------------------------------------------------------------------------

    @property
    def open_connections(self) -> int:
        """How many connections go through it now."""
        return self._loop.run(lambda: len(self._loop.links))

    def traffic(self) -> Traffic:
        """What has passed so far; subtract two to see what something costs."""
        return self._loop.run(self._traffic)

    def _traffic(self) -> Traffic:
        counts = self._loop.counts
        return Traffic(
            requests=dict(counts.requests),
            bytes_to_server=counts.sent[Direction.TO_SERVER],
            bytes_to_client=counts.sent[Direction.TO_CLIENT],
            connections=counts.connections,
        )


def _bound(host: str, port: int | None) -> socket.socket:
    """A socket bound to a port by its number: the kernel then keeps the port while nobody listens on it."""
    if port is None:
        with socket.socket() as finder:
            finder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            finder.bind((host, 0))
            port = finder.getsockname()[1]
    sock = socket.socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        raise FaultProxyError(
            f"cannot listen on {host}:{port} ({exc.strerror}); choose another port"
        ) from exc
    return sock


def _positive(nth: int) -> int:
    if nth < 1:
        raise FaultProxyError(f"nth is {nth}; the first request that fits is 1")
    return nth
