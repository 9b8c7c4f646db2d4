"""How long a whole request may take, whatever trickles over its connection. No I/O.

A time limit of a socket counts from the last byte, so a server that sends one now and then, or `100 Continue`
again and again, holds its client for ever. Here a request has three phases, each with a bound of its own:
sending, at least at a slowest rate; the beginning of the answer, within a fixed time; the rest of it, at a
slowest rate again. Both ways to a server keep these limits: `connection`, and the `transport` of boto3.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What is asked of a server.

    Args:
        silence_s: Longest wait for the next byte.
        slowest_bytes_per_s: On average, beyond `silence_s`.
    """

    silence_s: float
    slowest_bytes_per_s: int


class Patience:
    """What is left of it, in one request after another.

    Args:
        limits: Of each.
        clock: Seconds.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self.begin()

    def begin(self) -> None:
        """A request is to be sent. An answer that comes meanwhile has a fixed time."""
        self.body(self._limits.silence_s)
        self.answer(self._limits.silence_s)

    def answer(self, within_s: float) -> None:
        """The request is sent: from now on, its answer has so long to begin."""
        self._answer_until: float | None = self._clock() + within_s

    def body(self, beyond_s: float) -> None:
        """The answer has begun: the rest comes at the slowest rate at least, beyond so long."""
        self._answer_until = None
        self._beyond_s, self._waited_s, self._moved_bytes = beyond_s, 0.0, 0

    def to_send_s(self) -> float:
        """How long the next piece may take to be sent.

        Raises:
            TimeoutError: there is no patience left.
        """
        return self._left(self._at_rate())

    def to_receive_s(self) -> float:
        """How long the next piece may take to come.

        Raises:
            TimeoutError: there is no patience left.
        """
        until = self._answer_until
        return self._left(self._at_rate() if until is None else until - self._clock())

    def moved(self, began: float, size_bytes: int) -> None:
        """A piece went or came. What the caller did before `began` is not the server's fault."""
        self._waited_s += self._clock() - began
        self._moved_bytes += size_bytes

    def now(self) -> float:
        """For `moved`."""
        return self._clock()

    def _at_rate(self) -> float:
        return self._beyond_s + self._moved_bytes / self._limits.slowest_bytes_per_s - self._waited_s

    def _left(self, left_s: float) -> float:
        if left_s <= 0:
            raise TimeoutError("the server is too slow: it says too little, or nothing to the point")
        return min(left_s, self._limits.silence_s)
