"""Replacements for kazoo's own sockets and `select`, which wait too long, or without a limit.

Only kazoo's connection thread uses the sockets, except for `Stream.cut`.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import threading
from typing import Any

from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler

from leader.zookeeper.link import LinkWatch, Patience, ready

_CHUNK_BYTES = 8192
_NOT_NOW = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsHandshakeError(OSError):
    """A server accepted the connection, but the TLS handshake failed."""


class Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's thread handler, with a short limit for connecting and a `select` that detects a dead link."""

    def __init__(self, patience: Patience, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._patience, self._tls, self._pid = patience, tls, os.getpid()
        self.watch: LinkWatch | None = None

    def create_connection(
        self, address: tuple[str, int], *_: Any, hostname: str | None = None, **__: Any
    ) -> Stream:
        """Connect within the limit of `Patience`.

        kazoo's own TLS is not used, because it also trusts the system's authorities.
        """
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
        """Wait like `select.select`. ConnectionDropped if the link is dead; then kazoo closes the socket."""
        watch = self.watch
        if watch is None or watch.socket is None:
            return *ready(readers, writers, timeout), []
        left_s = watch.left_s()
        if left_s is not None:
            timeout = left_s if timeout is None else min(timeout, left_s)
        readable, writable = ready(readers, writers, timeout)
        if watch.socket in readable:
            watch.bytes_arrived()
        elif left_s is not None:
            self._end_if_dead(watch)
        return readable, writable, []

    def _end_if_dead(self, watch: LinkWatch) -> None:
        left_s = watch.left_s()
        if left_s is None or left_s > 0:
            return
        if ready([watch.socket], [], 0)[0]:  # an answer is there: the process was paused, or busy sending
            watch.bytes_arrived()
            return
        raise ConnectionDropped(
            "an answer is due and the server has been silent for two thirds of the session timeout"
        )

    def create_socket_pair(self) -> tuple[Waker, Waker]:
        """Make the two ends through which kazoo wakes its connection thread: twice the same `Waker`."""
        waker = Waker()
        return waker, waker

    def dispatch_callback(self, callback: Any) -> None:
        """Run a callback at once if it only enqueues. kazoo would use another thread, which is slower."""
        if getattr(callback.func, "only_enqueues", False):
            callback.func(*callback.args)
            return
        super().dispatch_callback(callback)

    def stop(self) -> None:
        """End the threads. Does nothing when a forked child exits: the threads exist only in the parent."""
        if os.getpid() == self._pid:
            super().stop()


class Stream:
    """A connected socket, with or without TLS, that reads all available bytes from the kernel at once.

    kazoo reads each answer in two pieces and waits before each. A hand-over needs several answers, and these
    waits are most of its time. Used by kazoo's connection thread alone, except for `cut`.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._taken = bytearray()  # received, not yet requested

    def fileno(self) -> int:
        """File descriptor of the socket; -1 once closed."""
        return self._socket.fileno()

    def getpeername(self) -> Any:
        """See `socket.socket`."""
        return self._socket.getpeername()

    def setblocking(self, blocking: bool) -> None:
        """See `socket.socket`."""
        self._socket.setblocking(blocking)

    def pending(self) -> int:
        """Number of received bytes that the kernel no longer has."""
        inside_tls = self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0
        return len(self._taken) + inside_tls

    def take(self, size: int) -> bytes | None:
        """Return `size` bytes if all have arrived; None: not yet, or never. Does not wait.

        OSError if the connection broke.
        """
        if len(self._taken) < size:
            try:
                self._taken += self._socket.recv(_CHUNK_BYTES)
            except _NOT_NOW:
                return None
            if len(self._taken) < size:
                return None
        return self._first(size)

    def recv(self, size: int) -> bytes:
        """Like that of a socket: at most `size` bytes; none at the end of the stream."""
        return self._first(size) if self._taken else self._socket.recv(size)

    def send(self, data: Any) -> int:
        """See `socket.socket`."""
        return self._socket.send(data)

    def sendall(self, data: Any) -> None:
        """See `socket.socket`. kazoo uses it outside a session, for four-letter commands."""
        self._socket.sendall(data)

    def close(self) -> None:
        """See `socket.socket`."""
        self._socket.close()

    def cut(self) -> None:
        """End the connection; a thread that waits on it notices at once. Any thread; safe once closed."""
        try:
            # Not `shutdown` of a TLS socket: that removes the TLS layer while another thread may read.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            return

    def _first(self, size: int) -> bytes:
        part = bytes(self._taken[:size])
        del self._taken[:size]
        return part


class Waker:
    """Replaces both ends of the pair of sockets through which kazoo wakes its connection thread.

    Such a pair has room for about 280 bytes, one for each request. Requests that were given up leave their
    byte in it, and a burst of requests fills it. Then a thread that adds a request is blocked, without a
    limit while there is no connection (kazoo #577). An eventfd is a kernel counter, and never gets full.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        # Held around each use of the descriptor: once closed, its number may belong to another file.
        self._lock = threading.Lock()

    def fileno(self) -> int:
        """A descriptor that is readable while a sent byte is not received; -1 once closed."""
        return self._fd

    def send(self, data: bytes) -> int:
        """Wake the thread. Never waits. OSError once closed."""
        with self._lock:
            self._require_open()
            os.eventfd_write(self._fd, len(data))
        return len(data)

    def recv(self, _size: int) -> bytes:
        """Receive one byte. BlockingIOError when there is none."""
        with self._lock:
            self._require_open()
            os.eventfd_read(self._fd)
        return b"\0"

    def close(self) -> None:
        """Close the descriptor. kazoo closes both ends, so this is called twice."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _require_open(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, "the client is closed")
