"""The lines of one participant: a fault proxy to each ZooKeeper server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from leader.testing.proxy import Direction, FaultProxy, Op, Request, Trap


class Wires:
    """What a participant takes for the ensemble. A fault strikes all its lines at once.

    Args:
        addresses: Of the real servers.
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
        """Cut at a request, whichever server it goes to."""
        return [
            (proxy.cut_after if after else proxy.cut_before)(op, nth=nth, when=_no_ping)
            for proxy in self._proxies
        ]

    def black_hole(self, direction: Direction) -> None:
        """Swallow everything."""
        for proxy in self._proxies:
            proxy.black_hole(direction)

    def stall(self) -> None:
        """Hold everything back."""
        for proxy in self._proxies:
            proxy.stall()

    def delay(self, by: timedelta) -> None:
        """Be slow."""
        for proxy in self._proxies:
            proxy.delay(by)

    def cut(self) -> None:
        """Cut what is connected."""
        for proxy in self._proxies:
            proxy.cut()

    def heal(self) -> None:
        """End all faults."""
        for proxy in self._proxies:
            proxy.heal()

    def close(self) -> None:
        """End."""
        for proxy in self._proxies:
            proxy.close()


def _no_ping(request: Request) -> bool:
    return request.op != Op.PING
