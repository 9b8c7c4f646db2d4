"""What the fault proxy may do to a request, and rules that choose. Pure."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class ProxiedRequest:
    """A request as the proxy saw it.

    Attributes:
        method: Of HTTP.
        bucket: First segment of the path.
        key: The rest of it, decoded; empty for the bucket itself.
        query: Decoded.
        start: First byte of the range that was asked for; None: no range was.
        end: Last byte of it; None: to the end.
        count: How many such requests (method and key) there have been, this one included.
        headers: By lower-case name.
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
        """Whether it asks for a listing of objects."""
        return self.method == "GET" and not self.key and "list-type" in self.query

    @property
    def gets(self) -> bool:
        """Whether it asks for an object's bytes."""
        return self.method == "GET" and bool(self.key)


@dataclass(frozen=True, slots=True)
class Fail:
    """An error of S3 instead of an answer; the server is not asked."""

    status: int = 500
    code: str = "InternalError"


@dataclass(frozen=True, slots=True)
class OtherWords:
    """Status 200 and words of another than the server, which is not asked: of a gateway on the way, say."""

    body: bytes = b"<html><body>Sign in</body></html>"


@dataclass(frozen=True, slots=True)
class SlowBody:
    """The body trickles."""

    bytes_per_s: int = 64 * KIB


@dataclass(frozen=True, slots=True)
class Stall:
    """After so many bytes of the body nothing comes any more; the connection stays open."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Truncate:
    """The connection is closed after so many bytes of the body, whose announced length was right."""

    after_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reset:
    """The connection is reset after so many bytes of the body; None: before the answer.

    The server has done what it was asked: its acknowledgement is lost.
    """

    after_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WrongBytes:
    """One byte of the body, at this offset or at its end, is another one. The length is right."""

    at: int = 0


@dataclass(frozen=True, slots=True)
class WrongRange:
    """Another range of the object than was asked for. For requests with a range.

    Args:
        shift_bytes: How much later it begins.
        says_so: Whether the answer names the range that it gives; else it names the one asked for.
    """

    shift_bytes: int = 1
    says_so: bool = True


@dataclass(frozen=True, slots=True)
class IgnoreRange:
    """The whole object, with status 200, though a range was asked for."""


@dataclass(frozen=True, slots=True)
class StaleListing:
    """A listing as it was when it was first asked for through this proxy."""


@dataclass(frozen=True, slots=True)
class InterimAnswers:
    """`100 Continue`, again and again, until the client hangs up."""


@dataclass(frozen=True, slots=True)
class Trickle:
    """The whole answer, its headers too, byte by byte: never long silent, and never done."""

    pause_s: float = 0.2


@dataclass(frozen=True, slots=True)
class NoHttp:
    """Bytes that are no HTTP."""


Fault = (
    Fail
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
"""Chooses what happens to a request; None: nothing. Called on the proxy's thread: it must not block."""


def no_fault(_: ProxiedRequest) -> None:
    """Everything passes."""


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
"""What heals when it is tried again, and takes no time out."""


class RandomFaults:
    """A rule: each request is hit with a probability. The same seed and requests give the same faults.

    Args:
        seed: Of the dice.
        rate: From 0 (never) to 1 (always).
        faults: To choose from, each as likely as the others.
        only: Requests that may be hit at all.
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
        """Throw the dice."""
        if not self._only(request):
            return None
        with self._lock:
            return self._dice.choice(self._faults) if self._dice.random() < self._rate else None
