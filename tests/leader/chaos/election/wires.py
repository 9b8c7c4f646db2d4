"""The connections between participants and servers, and between servers: each is a fault proxy."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tests.fault_proxy.proxy import Direction, FaultProxy, Op, Request, Trap


class Wires:
    """A participant's connections to the ensemble. A fault affects all of them together.

    Args:
        addresses: Addresses of the real servers.
    """

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        self._proxies = [FaultProxy([address]) for address in addresses]
        for proxy in self._proxies:
            proxy.start()

    @property
    def hosts(self) -> str:
        """Connection string."""
        return ",".join(proxy.hosts for proxy in self._proxies)

    def trap(self, *, after: bool, op: int | None, nth: int) -> list[Trap]:
        """Cut the connection at a request, to any server."""
        return [
            (proxy.cut_after if after else proxy.cut_before)(op, nth=nth, when=_no_ping)
            for proxy in self._proxies
        ]

    def black_hole(self, direction: Direction) -> None:
        """Drop all data."""
        for proxy in self._proxies:
            proxy.black_hole(direction)

    def stall(self) -> None:
        """Delay all data until the fault ends."""
        for proxy in self._proxies:
            proxy.stall()

    def delay(self, by: timedelta) -> None:
        """Slow down all data."""
        for proxy in self._proxies:
            proxy.delay(by)

    def cut(self) -> None:
        """Cut all connections."""
        for proxy in self._proxies:
            proxy.cut()

    def heal(self) -> None:
        """End all faults."""
        for proxy in self._proxies:
            proxy.heal()

    def server(self) -> int | None:
        """Index of the connected server; None without a connection."""
        return next((at for at, proxy in enumerate(self._proxies) if proxy.open_connections), None)

    def close(self) -> None:
        """End."""
        for proxy in self._proxies:
            proxy.close()


class PeerWires:
    """The connections between the servers of an ensemble. Pass `route` to the ensemble."""

    def __init__(self) -> None:
        self._proxies: list[tuple[int, int, FaultProxy]] = []

    def route(self, number: int, other: int, port: int) -> int:
        """See `tests.leader.zookeeper_ensemble.Route`."""
        proxy = FaultProxy([("127.0.0.1", port)], plain=True)
        proxy.start()
        self._proxies.append((number, other, proxy))
        return proxy.port

    def isolate(self, number: int) -> None:
        """Isolate one server from the others, but not from clients, without closing connections."""
        for one, other, proxy in self._proxies:
            if number in (one, other):
                proxy.black_hole()

    def refuse(self, number: int) -> None:
        """Refuse connections to a server that is down, as its own port would."""
        for _, other, proxy in self._proxies:
            if number == other:
                proxy.refuse()

    def heal(self) -> None:
        """End all faults."""
        for _, _, proxy in self._proxies:
            proxy.heal()

    def close(self) -> None:
        """End."""
        for _, _, proxy in self._proxies:
            proxy.close()


def _no_ping(request: Request) -> bool:
    return request.op != Op.PING
