"""Connections over which objects are read: HTTP/1.1, only GET, one answer at a time.

boto3 takes six times the CPU for each GET and 30 MiB of memory (ADR 47). This module knows nothing of S3. One
thread at a time uses a connection of a `ConnectionPool`.

Nothing that a server says is trusted: lengths are checked, headers are bounded, each phase of a request has
the time limits of `patience`, and after anything unexpected the connection is closed.
"""

from __future__ import annotations

import os
import select
import threading
import time
from contextlib import suppress

from blobsync.bucket.ports import OnProgress
from blobsync.s3.endpoint import Endpoint, connected
from blobsync.s3.messages import Head, HttpError, StaleConnectionError, broken, parsed, unchunked
from blobsync.s3.patience import RequestPatience

_HEAD_BYTES = 64 << 10
_BUFFER_BYTES = 512 << 10
"""Size of each connection's buffer. Smaller ones cost more CPU per byte, larger ones save none (ADR 47)."""
_INTERIM_ANSWERS = 10  # such as 100 Continue
_FINAL = 200
_TICK_S = 1.0


class FileWriteError(Exception):
    """The bytes could not be written to the file."""


class Connection:
    """One connection, opened at once (OSError, HttpError). Close it after any error."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._silence_s = endpoint.limits.silence_s
        self._patience = RequestPatience(endpoint.limits)
        self._socket = connected(endpoint)
        self._socket.settimeout(min(_TICK_S, self._silence_s))
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._rest = b""  # of the body, received with the headers
        self._left = 0
        self._asked_before = False
        self._keeps_open = False

    @property
    def reusable(self) -> bool:
        """True if the answer was read to its end, and nothing else was received."""
        return self._keeps_open and self._left == 0 and not self._rest

    @property
    def disturbed(self) -> bool:
        """True if the server closed the idle connection, or sent something without a request."""
        return bool(self._poll.poll(0)) or getattr(self._socket, "pending", int)() > 0  # decrypted already

    def ask(self, request: bytes, on_progress: OnProgress) -> Head:
        """Send a request and read the headers of its answer. `left` is then the length of its body.

        `on_progress` is called with 0 about once a second while nothing is received. StaleConnectionError if
        the server had closed the connection while it was idle; HttpError for no answer, or none that is HTTP.
        """
        asked_before, self._asked_before = self._asked_before, True
        self._keeps_open = False
        self._patience.begin()
        try:
            self._send(request)
            self._patience.answer(self._silence_s)
            data = self._receive(on_progress)
        except HttpError as exc:
            if asked_before and isinstance(exc.__cause__, ConnectionError):
                raise StaleConnectionError(str(exc)) from exc
            raise
        if not data and asked_before:
            raise StaleConnectionError("closed while idle")
        head = self._head(data, on_progress)
        self._patience.body(self._silence_s)
        # Without a length, the end of the body and the beginning of the next answer are not known.
        self._keeps_open = head.keeps_open and head.size_bytes is not None
        self._left = head.size_bytes or 0
        return head

    def take(self, most: int, on_progress: OnProgress) -> bytes:
        """Read some bytes of the body: at least one, at most `most` and `left`. HttpError if it broke off."""
        most = min(most, self._left)
        if self._rest:
            piece, self._rest = self._rest[:most], self._rest[most:]
        else:
            piece = self._receive(on_progress, most)
        self._took(len(piece))
        return piece

    def fill(self, fd: int, offset: int, most: int, on_progress: OnProgress) -> int:
        """Write some bytes of the body to a file: at least one, at most `most` and `left`. Returns how many.

        HttpError if it broke off, FileWriteError if they could not be written.
        """
        if self._rest:
            piece = self.take(most, on_progress)
            _write_at(fd, memoryview(piece), offset)
            return len(piece)
        room = self._buffer[: min(most, self._left)]
        size = self._receive_into(room, on_progress, fill=True)
        self._took(size)
        _write_at(fd, room[:size], offset)
        return size

    def take_short(self, head: Head, most: int, on_progress: OnProgress) -> bytes:
        """Read a short body, such as that of an error: up to about `most` bytes.

        HttpError if it broke off.
        """
        body = b""
        if head.size_bytes is not None:
            while self._left and len(body) < most:
                body += self.take(most, on_progress)
            return body
        body, self._rest = self._rest, b""
        while len(body) < most:
            # The end of a chunked body looks like this; only then is all of it parsed again.
            if head.is_chunked and body.endswith(b"\r\n\r\n") and (whole := unchunked(body)) is not None:
                return whole
            more = self._receive(on_progress)
            if not more:
                break
            body += more
        return body

    def close(self) -> None:
        """Close it. Safe to repeat."""
        self._socket.close()

    def _send(self, request: bytes) -> None:
        try:
            self._socket.sendall(request)
        except OSError as exc:
            raise broken(exc) from exc

    def _took(self, size: int) -> None:
        if size == 0:
            raise HttpError(f"broke off {self._left} bytes before its end")
        self._left -= size

    def _head(self, data: bytes, on_progress: OnProgress) -> Head:
        for _ in range(_INTERIM_ANSWERS):
            while (end := data.find(b"\r\n\r\n")) < 0:
                if len(data) >= _HEAD_BYTES:
                    raise HttpError("the answer has no end of its headers")
                more = self._receive(on_progress)
                if not more:
                    raise HttpError("broke off before the end of its headers")
                data += more
            head = parsed(data[:end])
            data = data[end + 4 :]
            if head.status >= _FINAL:
                self._rest = data
                return head
        raise HttpError("interim answers without end")

    def _receive(self, on_progress: OnProgress, most: int = _HEAD_BYTES) -> bytes:
        room = self._buffer[:most]
        return bytes(room[: self._receive_into(room, on_progress)])

    def _receive_into(self, room: memoryview, on_progress: OnProgress, *, fill: bool = False) -> int:
        """Wait for some bytes; with `fill`, for as many as come in a second. 0: the server closed it."""
        began = time.monotonic()
        while (size := self._receive_once(room, fill=fill)) is None:
            if time.monotonic() - began >= self._silence_s:
                raise HttpError(f"silent for {self._silence_s:g} s")
            on_progress(0)
        return size

    def _receive_once(self, room: memoryview, *, fill: bool) -> int | None:
        """None: nothing came for a second."""
        try:
            self._patience.to_receive_s()
        except TimeoutError as exc:
            raise HttpError(str(exc)) from exc
        began, size, came = self._patience.now(), 0, None
        until = began + _TICK_S
        try:
            while came is None or (fill and came and size < len(room) and self._patience.now() < until):
                came = self._socket.recv_into(room[size:])
                size += came
        except TimeoutError:
            pass
        except OSError as exc:
            raise broken(exc) from exc
        self._patience.moved(began, size)
        return None if came is None else size


class ConnectionPool:
    """Connections that are open and idle. Thread-safe; a forked child opens its own connections.

    At most `most` are idle.
    """

    def __init__(self, endpoint: Endpoint, most: int) -> None:
        self._endpoint, self._most = endpoint, most
        self._idle: list[Connection] = []
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()

    def ask(self, request: bytes, on_progress: OnProgress) -> tuple[Connection, Head]:
        """Send a request over an idle connection, or a new one. The caller gives it back, or closes it.

        HttpError for no answer, or none that is HTTP.
        """
        idle = self.idle()
        if idle is not None:
            with suppress(StaleConnectionError):
                return _asked(idle, request, on_progress)
        return _asked(self.open(), request, on_progress)

    def idle(self) -> Connection | None:
        """An idle connection; None: there is none."""
        while True:
            with self._lock:
                if self._pid != os.getpid():  # the parent uses these
                    self._idle, self._pid = [], os.getpid()
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not connection.disturbed:
                return connection
            connection.close()

    def open(self) -> Connection:
        """A new connection. HttpError if it cannot be opened."""
        try:
            return Connection(self._endpoint)
        except OSError as exc:
            raise broken(exc) from exc

    def give_back(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end; close another one, as after an error."""
        if connection.reusable:
            with self._lock:
                if not self._closed and self._pid == os.getpid() and len(self._idle) < self._most:
                    self._idle.append(connection)
                    return
        connection.close()

    def close(self) -> None:
        """Close the idle connections; the others are closed when they are given back."""
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for connection in idle:
            connection.close()


def _asked(connection: Connection, request: bytes, on_progress: OnProgress) -> tuple[Connection, Head]:
    try:
        return connection, connection.ask(request, on_progress)
    except BaseException:
        connection.close()
        raise


def _write_at(fd: int, view: memoryview, offset: int) -> None:
    try:
        while view:
            done = os.pwrite(fd, view, offset)
            view, offset = view[done:], offset + done
    except OSError as exc:
        raise FileWriteError(str(exc)) from exc
