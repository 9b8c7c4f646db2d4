"""A proxy for the S3 server that counts bytes. Not used in timed runs."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

_TURN_S = 0.2


class ByteCounter:
    """Counts the bytes of requests and responses, headers included, until `close`."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(_TURN_S)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._bytes = 0
        self._threads = [threading.Thread(target=self._accept, name="count-accept")]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def taken(self) -> int:
        """Bytes since the last call."""
        with self._lock:
            found, self._bytes = self._bytes, 0
        return found

    def close(self) -> None:
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for source, sink in ((client, server), (server, client)):
                    source.settimeout(_TURN_S)
                    thread = threading.Thread(target=self._pump, args=(source, sink), name="count-pump")
                    self._threads.append(thread)
                    thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            for data in self._received(source):
                with self._lock:
                    self._bytes += len(data)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    def _received(self, source: socket.socket) -> Iterator[bytes]:
        while not self._closing.is_set():
            try:
                data = source.recv(1 << 18)
            except TimeoutError:
                continue
            if not data:
                return
            yield data
