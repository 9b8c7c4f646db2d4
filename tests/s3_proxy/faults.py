"""The faults of the proxy, and rules that choose them. Pure."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """A request that the proxy has received.

    Attributes:
        method: Its HTTP method.
        bucket: First segment of the path.
        key: The rest of it, decoded; empty for the bucket itself.
        query: The decoded query.
        start: First byte of the requested range; None: no range.
        end: Last byte of the range; None: to the end.
        count: Number of requests with this method and key so far, this one included.
        headers: Headers by lower-case name.
    """

    method: str
    bucket: str
    key: str
    query: Mapping[str, str]
    start: int | None
    end: int | None
    count: int
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def lists(self) -> bool:
        """Whether it requests a listing of objects."""
        return self.method == "GET" and not self.key and "list-type" in self.query

    @property
    def gets(self) -> bool:
        """Whether it requests an object's bytes."""
        return self.method == "GET" and bool(self.key)


@dataclass(frozen=True, slots=True)
class Fail:
    """An error of S3 instead of an answer. The server does not get the request."""

    status: int = 500
    code: str = "InternalError"


@dataclass(frozen=True, slots=True)
class Redirect:
    """An answer that sends the client elsewhere. The server does not get the request."""

    status: int = 307
    location: str = "http://127.0.0.1:1/elsewhere?X-Amz-Signature=secret"


@dataclass(frozen=True, slots=True)
class OtherWords:
    """Status 200 with a text that is not from the server, such as from a gateway. S3 gets no request."""

    body: bytes = b"<html><body>Sign in</body></html>"


@dataclass(frozen=True, slots=True)
class SlowBody:
    """The body is sent slowly."""

    bytes_per_s: int = 64 * KIB


@dataclass(frozen=True, slots=True)
class Stall:
    """After this many bytes of the body, nothing more is sent. The connection stays open."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Truncate:
    """The connection is closed after this many bytes of the body. The announced length was right."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset after this many bytes of the body; None: before the answer.

    The server has executed the request; only its answer is lost.
    """

    after_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WrongBytes:
    """One byte of the body, at this offset or at its end, is wrong. The length is right."""

    at: int = 0


@dataclass(frozen=True, slots=True)
class WrongRange:
    """A wrong range of the object. For requests with a range.

    Args:
        shift_bytes: By how much it begins later.
        says_so: Whether the answer names the range that it contains; otherwise it names the requested one.
    """

    shift_bytes: int = 1
    says_so: bool = True


@dataclass(frozen=True, slots=True)
class IgnoreRange:
    """The whole object, with status 200, although a range was requested."""


@dataclass(frozen=True, slots=True)
class StaleListing:
    """A stale listing: the first one that was requested through this proxy."""


@dataclass(frozen=True, slots=True)
class InterimAnswers:
    """`100 Continue`, repeated until the client closes the connection."""


@dataclass(frozen=True, slots=True)
class Trickle:
    """The whole answer with its headers, byte by byte: never silent for long, and never finished."""

    pause_s: float = 0.2


@dataclass(frozen=True, slots=True)
class NoHttp:
    """Bytes that are not HTTP."""


Fault = (
    Fail
    | Redirect
    | OtherWords
    | SlowBody
    | Stall
    | Truncate
    | Reset
    | WrongBytes
    | WrongRange
    | IgnoreRange
    | StaleListing
    | InterimAnswers
    | Trickle
    | NoHttp
)
Rule = Callable[[ProxiedRequest], Fault | None]
"""Chooses the fault of a request; None: no fault. Called on the proxy's thread, so it must not block."""


def no_fault(_: ProxiedRequest) -> None:
    """No faults."""


SLOW_DOWN = Fail(503, "SlowDown")
EXPIRED_TOKEN = Fail(403, "ExpiredToken")

USUAL_FAULTS: Sequence[Fault] = (
    Fail(),
    SLOW_DOWN,
    Reset(),
    Reset(100 * KIB),
    Truncate(0),
    Truncate(64 * KIB),
    WrongBytes(0),
    WrongBytes(3 * MIB),
    WrongRange(),
    WrongRange(says_so=False),
    IgnoreRange(),
    StaleListing(),
    SlowBody(MIB),
    EXPIRED_TOKEN,
)
"""Faults that a retry can overcome, and that cause no timeout."""


class RandomFaults:
    """A rule: each request gets a fault with a probability. Equal seeds and requests give equal faults.

    Args:
        seed: Seed of the random choices.
        rate: Probability, 0..1.
        faults: The possible faults, with equal probabilities.
        only: Selects requests that may get a fault.
    """

    def __init__(
        self,
        seed: int,
        rate: float,
        faults: Sequence[Fault] = USUAL_FAULTS,
        only: Callable[[ProxiedRequest], bool] = lambda _: True,
    ) -> None:
        self._dice, self._rate, self._faults, self._only = random.Random(seed), rate, faults, only
        self._lock = threading.Lock()

    def __call__(self, request: ProxiedRequest) -> Fault | None:
        """Draw the fault of a request."""
        if not self._only(request):
            return None
        with self._lock:
            return self._dice.choice(self._faults) if self._dice.random() < self._rate else None
