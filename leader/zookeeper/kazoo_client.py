"""A kazoo client with the settings an election needs, and the three things kazoo hides.

kazoo 2.11 waits a whole session timeout for one dead server to accept a connection, lets the kernel
retransmit for minutes, and forgets which session timeout the server granted. We reach into its
connection object for these; nothing else in the package touches kazoo's private parts.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import Connect
from kazoo.security import CREATOR_ALL_ACL


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """Threads as usual; TCP connections that fail early and notice a dead peer."""

    def __init__(self, connect_timeout: timedelta, dead_peer_after: timedelta) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout.total_seconds()
        self._dead_peer_ms = int(dead_peer_after.total_seconds() * 1000)

    def create_connection(self, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """Connect within our own limit, so that one black-holed server does not cost the session."""
        limit = self._connect_timeout_s if timeout is None else min(timeout, self._connect_timeout_s)
        sock = super().create_connection(*args, timeout=limit, **kwargs)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            # Unacknowledged bytes end the connection after this, not after the kernel's quarter of an hour.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, self._dead_peer_ms)
        return sock

    def dispatch_callback(self, callback: Any) -> None:
        """Run what only enqueues at once; kazoo would take it to another thread, which costs time."""
        if getattr(callback.func, "only_enqueues", False):
            callback.func(*callback.args)
            return
        super().dispatch_callback(callback)


class Connector:
    """One KazooClient and what had to be learned from its insides."""

    def __init__(
        self,
        *,
        hosts: str,
        session_timeout: timedelta,
        connect_timeout: timedelta,
        auth: tuple[str, str] | None,
    ) -> None:
        self.negotiated: timedelta = session_timeout
        self.client = KazooClient(
            hosts=hosts,
            timeout=session_timeout.total_seconds(),
            handler=_Handler(connect_timeout, session_timeout * 2 / 3),
            auth_data=[auth] if auth else None,
            # Who brings a credential wants its nodes closed to others.
            default_acl=CREATOR_ALL_ACL if auth else None,
            connection_retry={
                "max_tries": -1,
                "delay": 0.1,
                "backoff": 2,
                "max_jitter": 0.4,
                "max_delay": 1.0,
            },
            command_retry={"max_tries": 1},
        )
        self._handshake = self.client._connection._invoke
        self.client._connection._invoke = self._invoke

    def drop(self) -> None:
        """Cut the TCP connection; kazoo notices at once and reconnects with the same session.

        For links that are dead while kazoo says connected: it looks for missing pings only when it
        has nothing to send (K1), and a leader always has.
        """
        sock = getattr(self.client._connection, "_socket", None)
        if sock is None:
            return
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # closed already: kazoo is reconnecting, which is all we want

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """Kazoo's handshake step; we note the session timeout the server grants."""
        answer = self._handshake(timeout, request, xid)
        if isinstance(request, Connect):
            granted_ms = answer[0].time_out
            if granted_ms > 0:  # 0 says that the session is over
                self.negotiated = timedelta(milliseconds=granted_ms)
        return answer
