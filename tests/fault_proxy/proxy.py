"""A TCP proxy that injects faults, for tests of clients of ZooKeeper.

It is between a client and its servers, and simulates faults of networks: connections that break before a
request was sent or after it was executed, links that drop all data, delays, refused connections.

    with FaultProxy([("127.0.0.1", 2181)]) as proxy:
        client = KazooClient(hosts=proxy.hosts)
        ...
        trap = proxy.cut_after(Op.CREATE)        # the node is created, but the client gets no reply
        assert trap.wait(timedelta(seconds=5))
        proxy.black_hole()                       # the connection stays open, but all data are dropped
        proxy.heal()

One thread, `leader-fault-proxy`, does all the work. Any thread may call the methods; when one returns, its
effect is active. Linux only; on loopback by default. Not for production.
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
    """The proxy cannot listen, or was used wrongly."""

    code = "fault_proxy"


@dataclass(frozen=True, slots=True)
class Traffic:
    """The traffic since the proxy was started.

    Args:
        requests: Number by opcode, with pings, handshakes, and requests that a trap caught.
        bytes_to_server: Forwarded bytes.
        bytes_to_client: Forwarded bytes.
        connections: Number of accepted connections that were connected to a server.
    """

    requests: dict[int, int]
    bytes_to_server: int
    bytes_to_client: int
    connections: int


class FaultProxy:
    """See the module.

    Args:
        targets: Servers, `(host, port)`. Each new connection goes to the next one that accepts it.
        host: The address on which it listens.
        port: The port on which it listens; by default, a free one. It does not change.
        plain: The two sides do not use ZooKeeper's protocol, so `cut_before` and `cut_after` do not work.
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
        """Start to listen. May be called once."""
        if self._loop.ran:
            raise FaultProxyError("this proxy was started before; make a new FaultProxy")
        self._listener.listen()
        self._loop.start()

    def close(self) -> None:
        """Cut all connections, stop listening, end the thread. Safe to repeat."""
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
        """Cut the connection when a request arrives. The server does not get that request.

        Args:
            op: Only requests of this kind; by default, any.
            nth: Number of the matching request, counted from 1.
            when: Only requests for which this is True. It runs on the proxy's thread, so it must not wait.
        """
        return self._set_trap(Trap(op=op, nth=_positive(nth), when=when, after=False))

    def cut_after(
        self, op: int | None = None, *, nth: int = 1, when: Callable[[Request], bool] | None = None
    ) -> Trap:
        """Cut the connection when the reply to a request arrives. The client does not get that reply.

        The server has executed the request, or refused it. The arguments are those of `cut_before`.
        """
        return self._set_trap(Trap(op=op, nth=_positive(nth), when=when, after=True))

    def _set_trap(self, trap: Trap) -> Trap:
        if self._plain:
            raise FaultProxyError("a plain proxy knows no requests; leave out plain=True, or use cut()")
        self._loop.run(lambda: self._loop.traps.append(trap))
        return trap

    # --- faults of connections ------------------------------------------------------------------

    def cut(self) -> int:
        """Cut all connections now. Returns how many there were. Clients may connect again."""
        return self._loop.run(self._loop.cut_all)

    def black_hole(self, direction: Direction = Direction.BOTH) -> None:
        """Drop all bytes, while connections stay open and new ones are accepted.

        The end of a connection is not forwarded, either. `heal` cuts connections that have lost bytes.
        """
        self._set_flow(direction, Flow.SWALLOW)

    def stall(self, direction: Direction = Direction.BOTH) -> None:
        """Hold all bytes until `heal`, then deliver them, like a retransmission after an outage."""
        self._set_flow(direction, Flow.HOLD)

    def delay(self, by: timedelta, direction: Direction = Direction.BOTH) -> None:
        """Delay bytes, in order. Zero ends the delay for new bytes."""

        def change() -> None:
            for way in direction.ways:
                self._loop.weather.delay_s[way] = by.total_seconds()

        self._loop.run(change)

    def refuse(self) -> None:
        """Refuse new connections, like a machine without a server. Existing connections remain."""
        self._loop.run(self._loop.refuse)

    def take_down(self) -> None:
        """Refuse new connections and cut the others, like a server that was killed, until `heal`."""
        self.refuse()
        self.cut()

    def heal(self) -> None:
        """End all faults: no traps, all bytes are forwarded, new connections are accepted."""
        self._loop.run(self._loop.heal)

    def _set_flow(self, direction: Direction, flow: Flow) -> None:
        def change() -> None:
            for way in direction.ways:
                self._loop.weather.flow[way] = flow

        self._loop.run(change)

    # --- state --------------------------------------------------------------------------------

    @property
    def open_connections(self) -> int:
        """Number of current connections."""
        return self._loop.run(lambda: len(self._loop.links))

    def traffic(self) -> Traffic:
        """The traffic so far. The difference of two calls is the cost of what happened between them."""
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
    """A socket that is bound to a port by its number, so that the kernel keeps the port for it."""
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
