"""What kazoo does with sockets and threads, done with more care.

Sockets are used by kazoo's connection thread alone.
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


class Stream:
    """The connected socket, with or without TLS, which takes from the kernel what is there in one go.

    kazoo reads each answer in two pieces and waits before each; a hand-over is several answers, and the waits
    are what takes the time. Used by kazoo's connection thread alone, but for `cut`.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._taken = bytearray()  # received, and not asked for yet

    def fileno(self) -> int:
        """Of the socket; -1 once closed."""
        return self._socket.fileno()

    def getpeername(self) -> Any:
        """As of a socket."""
        return self._socket.getpeername()

    def setblocking(self, blocking: bool) -> None:
        """As of a socket."""
        self._socket.setblocking(blocking)

    def pending(self) -> int:
        """How many bytes can be had of which the kernel knows nothing."""
        inside_tls = self._socket.pending() if isinstance(self._socket, ssl.SSLSocket) else 0
        return len(self._taken) + inside_tls

    def take(self, size: int) -> bytes | None:
        """All of so many bytes, if they are here; None: not yet, or never. Does not wait.

        Raises:
            OSError: The connection broke.
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
        """As of a socket: at most so many bytes; none at its end."""
        return self._first(size) if self._taken else self._socket.recv(size)

    def send(self, data: Any) -> int:
        """As of a socket."""
        return self._socket.send(data)

    def sendall(self, data: Any) -> None:
        """As of a socket. For what kazoo asks outside a session: its four-letter commands."""
        self._socket.sendall(data)

    def close(self) -> None:
        """As of a socket."""
        self._socket.close()

    def cut(self) -> None:
        """End it for good; whoever waits on it notices at once. Any thread; safe if it is closed."""
        try:
            # Not `shutdown` of a TLS socket: that drops the encryption under the reader's feet.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            return

    def _first(self, size: int) -> bytes:
        part = bytes(self._taken[:size])
        del self._taken[:size]
        return part


class Waker:
    """Stands in for both ends of the pair of sockets through which kazoo wakes its connection thread.

    Such a pair holds some 280 bytes. Requests that were given up leave theirs, and a burst of requests needs
    as many: then whoever adds one more is blocked, without a limit while there is no connection (kazoo #577).
    A counter of the kernel has room for more than can ever be asked.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK | os.EFD_SEMAPHORE)
        self._lock = threading.Lock()  # nobody writes to a number that was closed and given to another

    def fileno(self) -> int:
        """Readable while something was sent and not received; -1 once closed."""
        return self._fd

    def send(self, data: bytes) -> int:
        """Wake the thread. Never waits. OSError once closed."""
        with self._lock:
            self._require_open()
            os.eventfd_write(self._fd, len(data))
        return len(data)

    def recv(self, _size: int) -> bytes:
        """Take back one byte. BlockingIOError when there is none."""
        with self._lock:
            self._require_open()
            os.eventfd_read(self._fd)
        return b"\0"

    def close(self) -> None:
        """Kazoo closes both ends, so this is called twice."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _require_open(self) -> None:
        if self._fd < 0:
            raise OSError(errno.EBADF, "the client is closed")
