"""What kazoo does with sockets and threads, done with more care.

Sockets are used by kazoo's connection thread alone.
"""

from __future__ import annotations

import os
import socket
import ssl
from typing import Any

from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler

from leader.zookeeper.link import LinkWatch, ready
from leader.zookeeper.patience import Patience
from leader.zookeeper.stream import Stream
from leader.zookeeper.waker import Waker


class TlsHandshakeError(OSError):
    """A server accepted the connection, and then no encryption could be agreed on."""


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Threads as usual; connections that fail early, and a select that knows a dead link."""

    def __init__(self, patience: Patience, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._patience, self._tls, self._pid = patience, tls, os.getpid()
        self.watch: LinkWatch | None = None

    def create_connection(
        self, address: tuple[str, int], *_: Any, hostname: str | None = None, **__: Any
    ) -> Stream:
        """Connect within our own limit. kazoo's TLS would trust the system's authorities beside ours."""
        limit_s = self._patience.limit().total_seconds()
        sock = socket.create_connection(address, limit_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return Stream(sock)
        try:
            return Stream(self._tls.wrap_socket(sock, server_hostname=hostname))
        except TimeoutError:
            sock.close()
            raise
        except OSError as exc:
            sock.close()
            raise TlsHandshakeError(f"TLS with {hostname}:{address[1]} failed: {exc}") from exc
        except BaseException:
            sock.close()
            raise

    def select(
        self, readers: Any, writers: Any, _errors: Any, timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait as `select.select` does, but not for a dead link: that ends the connection."""
        watch = self.watch
        if watch is None or watch.socket is None:
            return *ready(readers, writers, timeout), []
        left_s = watch.left_s()
        if left_s is not None:
            timeout = left_s if timeout is None else min(timeout, left_s)
        readable, writable = ready(readers, writers, timeout)
        if watch.socket in readable:
            watch.heard()
        elif left_s is not None:
            self._end_if_dead(watch)
        return readable, writable, []

    def _end_if_dead(self, watch: LinkWatch) -> None:
        left_s = watch.left_s()
        if left_s is None or left_s > 0:
            return
        if ready([watch.socket], [], 0)[0]:  # we were away, or busy sending, and it did answer
            watch.heard()
            return
        raise ConnectionDropped(
            "an answer is due and the server has been silent for two thirds of the session"
        )

    def create_socket_pair(self) -> tuple[Waker, Waker]:
        """What wakes the connection thread."""
        waker = Waker()
        return waker, waker

    def dispatch_callback(self, callback: Any) -> None:
        """Run what only enqueues at once; kazoo would take it to another thread, which costs time."""
        if getattr(callback.func, "only_enqueues", False):
            callback.func(*callback.args)
            return
        super().dispatch_callback(callback)

    def stop(self) -> None:
        """End the threads. Does nothing in a forked child, which has none and calls this when it exits."""
        if os.getpid() == self._pid:
            super().stop()
