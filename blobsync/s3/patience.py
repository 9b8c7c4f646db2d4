"""Time limits of a whole request. No I/O.

The timeout of a socket counts from the last byte, so a server that sends one byte now and then, or
`100 Continue` again and again, would block its client for ever. Here a request has three phases, each with a
limit: it is sent at a minimum rate, the answer begins within a fixed time, and the rest of the answer comes
at a minimum rate. Both `connection` and the `transport` of boto3 keep these limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """The time limits of a request.

    `silence_s`: longest wait for the next byte. The rate is on average, beyond `silence_s`.
    """

    silence_s: float
    slowest_bytes_per_s: int


class RequestPatience:
    """How much time is left, in one request after another."""

    def __init__(self, limits: TimeLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self.begin()

    def begin(self) -> None:
        """Start a request. An answer that begins while it is sent has the same fixed time."""
        self.body(self._limits.silence_s)
        self.answer(self._limits.silence_s)

    def answer(self, within_s: float) -> None:
        """Note that the request is sent: its answer must begin within this time."""
        self._answer_until: float | None = self._clock() + within_s

    def body(self, beyond_s: float) -> None:
        """Note that the answer has begun: the rest must come at the minimum rate, beyond this time."""
        self._answer_until = None
        self._beyond_s, self._waited_s, self._moved_bytes = beyond_s, 0.0, 0

    def to_send_s(self) -> float:
        """How long the next piece may take to be sent. TimeoutError if no time is left."""
        return self._left(self._at_rate())

    def to_receive_s(self) -> float:
        """How long the next piece may take to come. TimeoutError if no time is left."""
        until = self._answer_until
        return self._left(self._at_rate() if until is None else until - self._clock())

    def moved(self, began: float, size_bytes: int) -> None:
        """Note that a piece was sent or received since `began`. Time before that does not count."""
        self._waited_s += self._clock() - began
        self._moved_bytes += size_bytes

    def now(self) -> float:
        """The time, for `moved`."""
        return self._clock()

    def _at_rate(self) -> float:
        return self._beyond_s + self._moved_bytes / self._limits.slowest_bytes_per_s - self._waited_s

    def _left(self, left_s: float) -> float:
        if left_s <= 0:
            raise TimeoutError("the server is too slow: it says too little, or nothing to the point")
        return min(left_s, self._limits.silence_s)
