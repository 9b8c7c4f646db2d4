"""The faults of a proxy: traps for single requests, and `Weather` for whole connections."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum

from tests.fault_proxy.frames import Request


class Direction(Enum):
    """Direction of bytes."""

    TO_SERVER = "to_server"
    TO_CLIENT = "to_client"
    BOTH = "both"

    @property
    def ways(self) -> tuple[Direction, ...]:
        """The single directions that it contains."""
        both = (Direction.TO_SERVER, Direction.TO_CLIENT)
        return both if self is Direction.BOTH else (self,)


class Flow(Enum):
    """What the proxy does with arriving bytes."""

    PASS = "pass"
    HOLD = "hold"
    SWALLOW = "swallow"


@dataclass(slots=True)
class Weather:
    """The state of all connections of a proxy, until it is changed. The proxy's thread only."""

    flow: dict[Direction, Flow] = field(default_factory=dict)
    delay_s: dict[Direction, float] = field(default_factory=dict)

    def flow_of(self, way: Direction) -> Flow:
        """What happens to bytes in this direction."""
        return self.flow.get(way, Flow.PASS)

    def delay_of(self, way: Direction) -> float:
        """Delay of bytes in this direction, in seconds."""
        return self.delay_s.get(way, 0.0)

    def clear(self) -> None:
        """Forward everything at once."""
        self.flow.clear()
        self.delay_s.clear()


class Trap:
    """Cuts the connection of one chosen request, once. See `FaultProxy.cut_before` and `cut_after`."""

    def __init__(
        self, *, op: int | None, nth: int, when: Callable[[Request], bool] | None, after: bool
    ) -> None:
        self.after = after
        self._op, self._left, self._when = op, nth, when
        self._caught: Request | None = None
        self._sprung = threading.Event()

    @property
    def sprung(self) -> bool:
        """Whether the connection was cut."""
        return self._sprung.is_set()

    @property
    def request(self) -> Request | None:
        """The caught request. If the trap waits for its reply, the connection may not be cut yet."""
        return self._caught

    def wait(self, timeout: timedelta) -> bool:
        """Wait until the connection was cut. Returns False after `timeout`."""
        return self._sprung.wait(timeout.total_seconds())

    def catches(self, request: Request) -> bool:
        """Whether this is the chosen request. The proxy's thread only."""
        if self._caught is not None or (self._op is not None and request.op != self._op):
            return False
        if self._when is not None and not self._when(request):
            return False
        self._left -= 1
        if self._left > 0:
            return False
        self._caught = request
        return True

    def spring(self) -> None:
        """Record that the connection was cut. The proxy's thread only."""
        self._sprung.set()
