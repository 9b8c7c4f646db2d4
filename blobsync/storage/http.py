"""A kept-open connection over which objects are read: HTTP/1.1, GET alone, one answer at a time.

It exists for speed. boto3 costs more than a millisecond of the interpreter for each GET and copies each byte
twice; this costs a tenth, and over plain HTTP the bytes go from socket to file inside the kernel. It knows
nothing of S3. A connection is used by one thread at a time; `HttpPool` hands them out.

What a server says is not trusted: lengths are checked, headers are bounded, and after anything unexpected the
connection is closed rather than used again.
"""

from __future__ import annotations

import select
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blobsync.storage.http_head import Head, HttpError, StaleConnectionError, broken, parsed
from blobsync.storage.ports import GoingOn
from blobsync.storage.splice import Pipe, write_at

if TYPE_CHECKING:
    import ssl

_HEAD_BYTES = 64 << 10
_RECEIVE_BYTES = 256 << 10
_INTERIM_ANSWERS = 10  # such as 100 Continue
_FINAL = 200
_TICK_S = 1.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where to connect, and how patiently.

    Args:
        host: Name or address.
        port: Of TCP.
        tls: None: plain HTTP.
        connect_timeout_s: For opening a connection.
        read_timeout_s: Longest silence.
        slowest_bytes_per_s: On average, beyond `read_timeout_s`.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    connect_timeout_s: float
    read_timeout_s: float
    slowest_bytes_per_s: int


class Connection:
    """One connection. Close it after any error.

    Args:
        endpoint: Where to. Connects at once.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._tick_s = min(_TICK_S, endpoint.read_timeout_s)
        plain = socket.create_connection((endpoint.host, endpoint.port), endpoint.connect_timeout_s)
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._socket = (
                plain
                if endpoint.tls is None
                else endpoint.tls.wrap_socket(plain, server_hostname=endpoint.host)
            )
        except BaseException:
            plain.close()
            raise
        self._socket.settimeout(self._tick_s)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._rest = b""
        self._left = 0
        self._got = 0
        self._waited_s = 0.0
        self._pipe: Pipe | None = None
        self._first, self._asked_before = True, False
        self._keeps_open = False

    @property
    def left(self) -> int:
        """Bytes of the body that have not been taken."""
        return self._left

    @property
    def reusable(self) -> bool:
        """Whether the answer was taken to its end, and nothing else came."""
        return self._keeps_open and self._left == 0 and not self._rest

    @property
    def disturbed(self) -> bool:
        """Whether the server closed an idle connection, or said something that nobody asked for."""
        return bool(self._poll.poll(0))

    def ask(self, request: bytes, going_on: GoingOn) -> Head:
        """Send a request and read the beginning of its answer. Its body is then `left`.

        Args:
            request: Whole.
            going_on: Called with 0 about once a second while nothing comes.

        Raises:
            StaleConnectionError: the server had closed the connection while it was idle.
            HttpError: no answer, or none that is HTTP.
        """
        self.send(request)
        return self.answer(going_on)

    def send(self, request: bytes) -> None:
        """Send a request, and do not wait; see `ask`. `answer` comes next."""
        self._got, self._waited_s, self._keeps_open = 0, 0.0, False
        self._asked_before, self._first = not self._first, False
        try:
            self._socket.sendall(request)
        except TimeoutError as exc:
            raise HttpError("the request could not be sent in time") from exc
        except OSError as exc:
            raise self._stale_or_broken(exc) from exc

    def answer(self, going_on: GoingOn) -> Head:
        """Read the beginning of the answer to what was sent. As `ask`."""
        try:
            data = self._receive(_HEAD_BYTES, going_on)
        except HttpError as exc:
            raise self._stale_or_broken(exc) from exc
        if not data and self._asked_before:
            raise StaleConnectionError("closed while idle")
        head = self._head(data, going_on)
        # Without a length nobody knows where the body ends, so the next answer cannot be told from it.
        self._keeps_open = head.keeps_open and head.size_bytes is not None
        self._left = head.size_bytes or 0
        return head

    def _stale_or_broken(self, exc: OSError | HttpError) -> HttpError:
        if self._asked_before and isinstance(exc.__cause__ or exc, ConnectionError):
            return StaleConnectionError(str(exc))
        return broken(exc)

    def take(self, most: int, going_on: GoingOn) -> bytes:
        """Some bytes of the body: at least one, at most `most` and `left`.

        Raises:
            HttpError: it broke off.
        """
        most = min(most, self._left)
        if self._rest:
            piece, self._rest = self._rest[:most], self._rest[most:]
        else:
            piece = self._receive(min(most, _RECEIVE_BYTES), going_on)
        self._took(len(piece))
        return piece

    def fill(self, fd: int, offset: int, most: int, going_on: GoingOn) -> int:
        """Write some bytes of the body into a file: at least one, at most `most` and `left`. Say how many.

        Raises:
            HttpError: it broke off.
            FileWriteError: the file did not take them.
        """
        if self._rest or self._endpoint.tls is not None:
            piece = self.take(most, going_on)
            write_at(fd, piece, offset)
            return len(piece)
        if self._pipe is None:
            self._pipe = Pipe()
        size = self._splice(self._pipe, min(most, self._left), going_on)
        self._took(size)
        self._pipe.drain(fd, size, offset)
        return size

    def close(self) -> None:
        """Close it. Safe to repeat."""
        self._socket.close()
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _took(self, size: int) -> None:
        if size == 0:
            raise HttpError(f"broke off after {self._got} bytes, {self._left} before its end")
        self._left -= size
        self._got += size

    def _head(self, data: bytes, going_on: GoingOn) -> Head:
        for _ in range(_INTERIM_ANSWERS):
            while (end := data.find(b"\r\n\r\n")) < 0:
                if len(data) >= _HEAD_BYTES:
                    raise HttpError("the answer has no end of its headers")
                more = self._receive(_HEAD_BYTES, going_on)
                if not more:
                    raise HttpError("broke off before the end of its headers")
                data += more
            head = parsed(data[:end])
            data = data[end + 4 :]
            if head.status >= _FINAL:
                self._rest = data
                return head
        raise HttpError("interim answers without end")

    def _receive(self, most: int, going_on: GoingOn) -> bytes:
        began = time.monotonic()
        while True:
            try:
                data = self._socket.recv(most)
            except TimeoutError:
                self._still(began, going_on)
            except OSError as exc:
                raise broken(exc) from exc
            else:
                self._came(began)
                return data

    def _splice(self, pipe: Pipe, most: int, going_on: GoingOn) -> int:
        began = time.monotonic()
        while True:
            try:
                size = pipe.fill(self._socket.fileno(), most)
            except BlockingIOError:
                if not self._poll.poll(self._tick_s * 1000):
                    self._still(began, going_on)
            except OSError as exc:
                raise broken(exc) from exc
            else:
                self._came(began)
                return size

    def _still(self, began: float, going_on: GoingOn) -> None:
        """Nothing came for a moment."""
        if time.monotonic() - began >= self._endpoint.read_timeout_s:
            raise HttpError(f"silent for {self._endpoint.read_timeout_s:g} s")
        going_on(0)

    def _came(self, began: float) -> None:
        """Something came. What the caller does in between is not the server's fault and not counted."""
        self._waited_s += time.monotonic() - began
        allowed_s = self._endpoint.read_timeout_s + self._got / self._endpoint.slowest_bytes_per_s
        if self._waited_s > allowed_s:
            raise HttpError(
                f"too slow: {self._got} bytes in {self._waited_s:.0f} s, below "
                f"{self._endpoint.slowest_bytes_per_s} bytes a second"
            )
