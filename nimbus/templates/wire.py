"""Frames between a process and its template helper: four bytes of length, then JSON."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

LARGEST_FRAME_BYTES = 64 << 20


def send_frame(connection: socket.socket, message: object, until_s: float | None = None) -> None:
    """Send a message.

    Args:
        connection: A stream.
        message: A value that JSON can represent.
        until_s: Deadline on `time.monotonic`; None: no deadline.

    Raises:
        OSError: the other side is closed, or does not read until the deadline.
    """
    body = json.dumps(message).encode()
    _limit(connection, until_s)
    connection.sendall(len(body).to_bytes(4, "big") + body)


def receive_frame(connection: socket.socket, until_s: float | None = None) -> Any:
    """Receive a message; None: the other side has closed.

    Raises:
        OSError: nothing came until the deadline.
        ValueError: the received bytes are no message.
    """
    head = _receive(connection, 4, until_s)
    size = int.from_bytes(head, "big")
    if size > LARGEST_FRAME_BYTES:
        raise ValueError(f"a message of {size} bytes")
    body = _receive(connection, size, until_s) if len(head) == 4 else b""
    return json.loads(body) if len(body) == size > 0 else None


def _receive(connection: socket.socket, size: int, until_s: float | None) -> bytes:
    """Receive `size` bytes; fewer if the other side closes first."""
    received = bytearray()
    while len(received) < size:
        _limit(connection, until_s)
        part = connection.recv(min(size - len(received), 1 << 20))
        if not part:
            break
        received += part
    return bytes(received)


def _limit(connection: socket.socket, until_s: float | None) -> None:
    connection.settimeout(None if until_s is None else max(0.001, until_s - time.monotonic()))
