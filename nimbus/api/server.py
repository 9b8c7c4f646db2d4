"""Serves an application over HTTP from a thread of its own, `nimbus-api`."""

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

from nimbus.api.connections import BoundedProtocol, bounded, with_tls
from nimbus.domain.errors import NimbusError

_log = structlog.stdlib.get_logger(__name__)

_BACKLOG = 128
_START_DEADLINE_S = 10.0
_POLL_S = 0.01


class PortInUseError(NimbusError):
    """Another process listens on the port of the API."""

    code = "port_in_use"
    exit_code = 4

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"the API cannot listen on {host}:{port}: another process uses that port. Stop it "
            f"(`ss -ltnp 'sport = :{port}'` names it), or set `scheduler.port` to another one."
        )
        self.host, self.port = host, port


class BindError(NimbusError):
    """The API cannot listen where it was told to."""

    code = "bind_failed"
    exit_code = 2

    def __init__(self, host: str, port: int, why: str) -> None:
        super().__init__(
            f"the API cannot listen on {host}:{port}: {why}. Set `scheduler.host` to an address of this "
            "machine, and `scheduler.port` to a port this user may use (above 1023)."
        )


class ServerStartError(NimbusError):
    """The server ended before it served, or did not come up in time."""

    code = "api_start_failed"


class ApiServer:
    """An HTTP server in a thread. Starts once.

    Args:
        app: What is served.
        host: Where to listen.
        port: 0 for any free one; `port` says which.
        tls: What it is served with; None: plain HTTP.
        protocol: Of connections; None: with the usual bounds.
    """

    def __init__(
        self,
        app: FastAPI,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: ssl.SSLContext | None = None,
        protocol: type[BoundedProtocol] | None = None,
    ) -> None:
        self._app, self.host, self.port = app, host, port
        self._tls, self._protocol = tls, protocol or bounded()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._socket: socket.socket | None = None

    @property
    def url(self) -> str:
        """Base URL, once started."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls else 'http'}://{host}:{self.port}"

    def start(self) -> None:
        """Bind, then serve. Requests are answered when it returns.

        Raises:
            PortInUseError: another process listens there.
            BindError: the address is not ours, or the port is reserved.
            ServerStartError: it did not come up.
        """
        self._socket, tls = self._bind(), self._tls
        config = uvicorn.Config(
            self._app,
            log_config=None,  # lines go where the process's other lines go
            access_log=False,
            lifespan="off",
            server_header=False,
            proxy_headers=False,  # who asks, and how, is what the connection says
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

    def stop(self, timeout: timedelta = timedelta(seconds=5)) -> None:
        """Take no new requests, let those under way end, and join the thread. Safe to repeat."""
        if self._server is None or self._thread is None:
            return
        self._app.state.events.close()
        self._server.should_exit = True
        self._thread.join(timeout.total_seconds())
        if self._thread.is_alive():
            self._server.force_exit = True
            self._thread.join(1.0)
            _log.warning("api_stop_forced", url=self.url, still_alive=self._thread.is_alive())
        if self._socket is not None:
            self._socket.close()

    def _bind(self) -> socket.socket:
        # Ours, not uvicorn's: that one ends the whole process when a port is busy.
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        # With the protocol named, asyncio sets TCP_NODELAY: else an answer waits 40 ms for the client's ACK.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((self.host, self.port))
            listener.listen(_BACKLOG)
        except OSError as exc:
            listener.close()
            if exc.errno == errno.EADDRINUSE:
                raise PortInUseError(self.host, self.port) from exc
            raise BindError(self.host, self.port, exc.strerror or str(exc)) from exc
        self.port = listener.getsockname()[1]
        return listener

    def _await_started(self, server: uvicorn.Server, thread: threading.Thread) -> None:
        until = time.monotonic() + _START_DEADLINE_S
        while not server.started:
            thread.join(_POLL_S)
            if not thread.is_alive() or time.monotonic() > until:
                self.stop()
                raise ServerStartError(f"the API did not come up on {self.url}; the log has the cause.")
