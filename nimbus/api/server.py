"""Serves an application over HTTP on its own thread, `nimbus-api`."""

from __future__ import annotations

import errno
import socket
import ssl
import threading
import time
from datetime import timedelta

import structlog
import uvicorn
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from nimbus.api.connections import BoundedProtocol, bounded, with_tls
from nimbus.domain.errors import NimbusError

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

    Args:
        app: The application.
        host: The address to listen on.
        port: The port; 0: any free one, which `port` has after the start.
        tls: TLS context; None: plain HTTP.
        protocol: Protocol of connections; None: that with the default limits.
        keys: Configuration keys of host and port, for messages.
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
        """Do now what the first request would wait for. Any thread.

        FastAPI builds the routes of a router when it first searches a path in it: 0.2 s. The first page reads
        the whole catalog, a later one only its changes: 0.5 s for 10,000 pipelines.
        """
        for _ in iter_route_contexts(self._app.routes):
            pass
        try:
            for step in self._app.state.warm_ups:
                step()
        except NimbusError as exc:  # a request will read it
            _log.warning("catalog_not_read", error=str(exc))

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
