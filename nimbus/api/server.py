"""Serves an application over HTTP on its own thread, `nimbus-api`.

It limits the number of connections, and how slow a client may be. Without limits, each idle connection keeps
a file descriptor for ever. A scheduler without free descriptors can neither reach ZooKeeper nor write a file.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
import threading
import time
from asyncio.sslproto import SSLProtocol
from datetime import timedelta
from typing import Any, ClassVar

import structlog
import uvicorn
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from uvicorn.protocols.http.h11_impl import H11Protocol

from nimbus.domain.errors import NimbusError

MAX_CONNECTIONS = 1000
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
        most = min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    limits = {"most": most, "head_within_s": head_within_s, "taken_within_s": taken_within_s, "waiting": {}}
    return type("BoundedProtocol", (BoundedProtocol,), limits)


_log = structlog.stdlib.get_logger(__name__)

_BACKLOG = 128
_START_DEADLINE_S = 10.0
_POLL_S = 0.01


class PortInUseError(NimbusError):
    """Another process listens on the port."""

    code = "port_in_use"
    exit_code = 4

    def __init__(self, host: str, port: int, key: str) -> None:
        super().__init__(
            f"cannot listen on {host}:{port}: another process uses that port. Stop it "
            f"(`ss -ltnp 'sport = :{port}'` names it), or set `{key}` to another one."
        )
        self.host, self.port = host, port


class BindError(NimbusError):
    """A process cannot listen at the configured address."""

    code = "bind_failed"
    exit_code = 2

    def __init__(self, host: str, port: int, why: str, keys: tuple[str, str]) -> None:
        super().__init__(
            f"cannot listen on {host}:{port}: {why}. Set `{keys[0]}` to an address of this "
            f"machine, and `{keys[1]}` to a port this user may use (above 1023)."
        )


class ServerStartError(NimbusError):
    """The server ended during its start, or did not start in time."""

    code = "api_start_failed"


class ApiServer:
    """An HTTP server in a thread. Starts once.

    With port 0 it listens on a free one, which `port` has after the start. `tls`: None: plain HTTP;
    `protocol`: None: that with the default limits; `keys`: configuration keys of host and port, for messages.
    """

    def __init__(
        self,
        app: FastAPI,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        protocol: type[BoundedProtocol] | None = None,
        keys: tuple[str, str] = ("scheduler.host", "scheduler.port"),
    ) -> None:
        self._keys = keys
        self._app, self.host, self.port = app, host, port
        self._tls, self._protocol = tls, protocol or bounded()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None

    @property
    def url(self) -> str:
        """Base URL, after the start."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        """Bind, then serve. Requests are answered when it returns.

        Raises:
            PortInUseError: another process listens there.
            BindError: the address is not of this host, or the port is reserved.
            ServerStartError: the server did not start.
        """
        self._socket, tls = self._bind(), self._tls
        config = uvicorn.Config(
            self._app,
            log_config=None,  # use the logging of the process
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # trust only the connection for the client's address and scheme
            http=self._protocol if tls is None else with_tls(self._protocol, tls),  # type: ignore[arg-type]
            timeout_keep_alive=15,
            timeout_graceful_shutdown=3,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="nimbus-api", daemon=True
        )
        self._thread.start()
        self._await_started(self._server, self._thread)
        _log.info("api_started", url=self.url)

    def warm_up(self) -> None:
        """Do now what the first request would wait for. Any thread. No error ends the process.

        FastAPI builds the routes of a router when it first searches a path in it: 0.2 s. The first page reads
        the whole catalog, a later one only its changes: 0.5 s for 10,000 pipelines.
        """
        for _ in iter_route_contexts(self._app.routes):
            pass
        try:
            for step in self._app.state.warm_ups:
                step()
        except Exception as exc:  # noqa: BLE001 - a request will read it, and says what is wrong
            _log.warning("warm_up_failed", error=str(exc))

    def stop(self, timeout: timedelta = timedelta(seconds=5)) -> None:
        """Accept no new requests, wait for those under way, and join the thread. Safe to repeat."""
        if self._server is None or self._thread is None:
            return
        if (events := getattr(self._app.state, "events", None)) is not None:  # a worker has none
            events.close()
        self._server.should_exit = True
        self._thread.join(timeout.total_seconds())
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(1.0)
            _log.warning("api_stop_forced", url=self.url, still_alive=self._thread.is_alive())
        if self._socket is not None:
            self._socket.close()

    def _bind(self) -> socket.socket:
        # We bind, because uvicorn would end the whole process when a port is busy.
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # With an explicit protocol, asyncio sets TCP_NODELAY. Otherwise an answer waits 40 ms for an ACK.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, self.port))
            listener.listen(_BACKLOG)
        except OSError as exc:
            listener.close()
            if exc.errno == errno.EADDRINUSE:
                raise PortInUseError(self.host, self.port, self._keys[1]) from exc
            raise BindError(self.host, self.port, exc.strerror or str(exc), self._keys) from exc
        self.port = listener.getsockname()[1]
        return listener

    def _await_started(self, server: uvicorn.Server, thread: threading.Thread) -> None:
        until = time.monotonic() + _START_DEADLINE_S
        while not server.started:
            thread.join(_POLL_S)
            if not thread.is_alive() or time.monotonic() > until:
                self.stop()
                raise ServerStartError(f"the API did not come up on {self.url}; the log has the cause.")
