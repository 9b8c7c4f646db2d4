"""A server with the part of ZooKeeper's protocol that a session needs, and with faults on request."""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
from types import TracebackType

HANDSHAKE_LIMIT_S = 30.0
EXISTS, GET_DATA, PING, CLOSE = 3, 4, 11, -11
_STAT = bytes(68)
_SO_ATTACH_FILTER = 26


class ScriptedZooKeeper:
    """See the module. One thread for each connection; all have ended after the `with` block.

    Attributes:
        session_id: Given to every client, whatever session it requested.
        deaf: Reads everything and answers nothing, not even a new handshake.
        data: The data of every node.
        piece, pause_s: Answers to `get` are sent in pieces of this size, with a pause after each.
    """

    def __init__(self, session_timeout_ms: int) -> None:
        self.session_id = 0x10
        self.deaf = False
        self.data = b""
        self.piece, self.pause_s = 1 << 20, 0.0
        self.handshakes = 0
        self._timeout_ms = session_timeout_ms
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> ScriptedZooKeeper:
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            self._cut(connection)
        for thread in self._threads:
            thread.join(60)

    def cut(self) -> None:
        """End all connections."""
        for connection in self._connections:
            self._cut(connection)

    def vanish(self) -> None:
        """From now on the kernel drops all data of the current connections, without acknowledging them."""
        drop_all = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # BPF: return 0 bytes
        program = struct.pack("HxxxxxxP", 1, ctypes.addressof(drop_all))
        for connection in self._connections:
            connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def _spawn(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, name="scripted-zookeeper")  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(HANDSHAKE_LIMIT_S)
            self._connections.append(connection)
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        try:
            self._frame(connection)
            self.handshakes += 1
            self._listen(connection)
            self._send(connection, struct.pack(">iiqi", 0, self._timeout_ms, self.session_id, 16) + bytes(17))
            while True:
                self._answer(connection, self._frame(connection))
        except OSError:
            connection.close()

    def _answer(self, connection: socket.socket, request: bytes) -> None:
        xid, op = struct.unpack_from(">ii", request)
        self._listen(connection)
        header = struct.pack(">iqi", xid, 1, 0)
        if op == GET_DATA:
            self._send(connection, header + struct.pack(">i", len(self.data)) + self.data + _STAT)
        else:
            self._send(connection, header + (_STAT if op == EXISTS else b""))
        if op == CLOSE:
            raise ConnectionAbortedError("the client has said good-bye")

    def _listen(self, connection: socket.socket) -> None:
        """Accept connections. While deaf, drop all their data."""
        while self.deaf:
            if not connection.recv(1 << 16):
                raise ConnectionResetError("the client has gone")

    def _send(self, connection: socket.socket, payload: bytes) -> None:
        frame = struct.pack(">i", len(payload)) + payload
        for start in range(0, len(frame), self.piece):
            connection.sendall(frame[start : start + self.piece])
            if len(frame) > self.piece and self._stopping.wait(self.pause_s):
                raise ConnectionAbortedError("stopping")

    def _frame(self, connection: socket.socket) -> bytes:
        return self._read(connection, struct.unpack(">i", self._read(connection, 4))[0])

    def _read(self, connection: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            part = connection.recv(count - len(data))
            if not part:
                raise ConnectionResetError("the client has gone")
            data += part
        return data

    def _cut(self, connection: socket.socket) -> None:
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return
