"""Connections that are open and wait for the next request."""

from __future__ import annotations

import os
import threading

from blobsync.storage.http import Connection, Endpoint
from blobsync.storage.http_head import broken


class HttpPool:
    """Connections that are open and idle. Thread-safe; a forked child opens its own.

    Args:
        endpoint: Where to.
        most: How many idle ones are kept.
    """

    def __init__(self, endpoint: Endpoint, most: int) -> None:
        self._endpoint, self._most = endpoint, most
        self._idle: list[Connection] = []
        self._pid = os.getpid()
        self._closed = False
        self._lock = threading.Lock()

    def idle(self) -> Connection | None:
        """One that was used before; None: there is none."""
        while True:
            with self._lock:
                if self._pid != os.getpid():  # the parent goes on using these
                    self._idle, self._pid = [], os.getpid()
                if not self._idle:
                    return None
                connection = self._idle.pop()
            if not connection.disturbed:
                return connection
            connection.close()

    def open(self) -> Connection:
        """A new one.

        Raises:
            HttpError: it cannot be opened.
        """
        try:
            return Connection(self._endpoint)
        except OSError as exc:
            raise broken(exc) from exc

    def give_back(self, connection: Connection) -> None:
        """Keep a connection for later, if it is of use."""
        if connection.reusable:
            with self._lock:
                if not self._closed and self._pid == os.getpid() and len(self._idle) < self._most:
                    self._idle.append(connection)
                    return
        connection.close()

    def close(self) -> None:
        """Close those that are idle; the others are closed when they are given back."""
        with self._lock:
            self._closed, idle, self._idle = True, self._idle, []
        for connection in idle:
            connection.close()
