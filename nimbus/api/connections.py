"""Limits of connections to the API: their number, and how slow a client may be.

Without limits, each idle connection keeps a file descriptor for ever. A scheduler without free descriptors
can neither reach ZooKeeper nor write a file.
"""

from __future__ import annotations

import asyncio
import resource
import ssl
from asyncio.sslproto import SSLProtocol
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

MOST_CONNECTIONS = 1000
HEAD_WITHIN_S = 10.0
"""Limit from the connection or the last answer to the end of a request's head, with the TLS handshake."""
TAKEN_WITHIN_S = 60.0
"""Longest time in which a client reads nothing of an answer."""


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with deadlines. Each server needs its own class, see `bounded`."""

    most: ClassVar[int]
    head_within_s: ClassVar[float]
    taken_within_s: ClassVar[float]
    waiting: ClassVar[dict[BoundedProtocol, None]]
    """Connections that wait for a request or the rest of its body, in the order in which they began to."""

    _head_timer: asyncio.TimerHandle | None = None
    _taken_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol. With TLS, this is after the handshake."""
        self.accepted(transport)
        super().connection_made(transport)

    def accepted(self, transport: Any) -> None:
        """Count a connection, once. Above the limit, abort the one that has waited longest for its client."""
        if self in self.connections:
            return
        self.transport = transport
        self.connections.add(self)
        self._look_at_request()
        if len(self.connections) > self.most:
            longest = next(iter(self.waiting))
            longest._owe_nothing()  # the next one too many aborts another
            longest.transport.abort()

    def gone(self) -> None:
        """Remove a connection from the count. Safe to repeat."""
        self._owe_nothing()
        self.connections.discard(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self.gone()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        self._look_at_request()

    def pause_writing(self) -> None:
        """See asyncio.Protocol: the client does not read what is sent."""
        super().pause_writing()
        if self._taken_timer is None:
            self._taken_timer = self.loop.call_later(self.taken_within_s, self.transport.abort)

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        super().resume_writing()
        if self._taken_timer is not None:
            self._taken_timer.cancel()
            self._taken_timer = None

    def _look_at_request(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            if self.cycle.more_body:  # whose deadline `nimbus.api.middleware.BodyLimit` keeps
                self._stop_head_timer()
                self.waiting.setdefault(self, None)
            else:
                self._owe_nothing()
        elif self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(self.head_within_s, self.transport.abort)
            self.waiting[self] = None

    def _owe_nothing(self) -> None:
        self.waiting.pop(self, None)
        self._stop_head_timer()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class BoundedHandshake(SSLProtocol):
    """asyncio's TLS over a `BoundedProtocol`, which counts the connection from when it is accepted.

    asyncio itself reports a connection to a protocol only after the handshake. See `with_tls`.
    """

    served: ClassVar[type[BoundedProtocol]]
    context: ClassVar[ssl.SSLContext]

    def __init__(self, **given: Any) -> None:
        self._served = self.served(**given)
        nobody_waits: Any = None
        super().__init__(asyncio.get_running_loop(), self._served, self.context, nobody_waits, True)

    def connection_made(self, transport: Any) -> None:
        """See asyncio.BaseProtocol."""
        self._served.accepted(transport)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """See asyncio.BaseProtocol. asyncio reports this to `served` only after a handshake."""
        super().connection_lost(exc)
        self._served.gone()


def with_tls(served: type[BoundedProtocol], context: ssl.SSLContext) -> type[BoundedHandshake]:
    """The protocol of a server with TLS."""
    return type("BoundedHandshake", (BoundedHandshake,), {"served": served, "context": context})


def bounded(
    most: int | None = None, head_within_s: float = HEAD_WITHIN_S, taken_within_s: float = TAKEN_WITHIN_S
) -> type[BoundedProtocol]:
    """A protocol for one server. `most`: limit of connections; None: half of the file descriptors."""
    if most is None:
        most = min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    limits = {"most": most, "head_within_s": head_within_s, "taken_within_s": taken_within_s, "waiting": {}}
    return type("BoundedProtocol", (BoundedProtocol,), limits)
