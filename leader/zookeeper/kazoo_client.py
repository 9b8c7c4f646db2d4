"""A kazoo client with the settings that an election needs, and with corrections of kazoo 2.11.

kazoo 2.11 has these faults:

- It waits a whole session timeout for one dead server to accept a connection.
- It does not notice a dead link while requests are being sent.
- It does not store which session timeout the server granted, nor why a connection failed.
- It blocks a thread that adds a request to a full queue.
- It waits before each read and each send, although usually there is nothing to wait for.

For the corrections, this module uses private parts of kazoo's connection object. No other module of the
package uses private parts of kazoo.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import AuthFailedError, ConnectionDropped, SASLException, SessionClosedRequireSaslError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.paths import _prefix_root
from kazoo.protocol.serialization import Connect, Watch, int_struct, write_string
from kazoo.protocol.states import EVENT_TYPE_MAP, WatchedEvent
from kazoo.security import ACL, Id

from leader.clock import boottime
from leader.zookeeper.config import SASL, ZooKeeperConfig, default_access, read_hosts
from leader.zookeeper.handler import Handler
from leader.zookeeper.link import LinkWatch, Patience

_MAX_BACKOFF_S = 1.0
_NO_PASSWORD = b"\0" * 16
_JITTER = 0.4

ToldBelow = Callable[[WatchedEvent], None]
"""Called on kazoo's connection thread with each watch event of a session. It must only enqueue."""
_PERSISTENT_RECURSIVE = 1


class _Connection(ConnectionHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's connection, with a `LinkWatch`. Stores why the last attempt to connect failed."""

    def __init__(self, client: KazooClient, patience: Patience, sasl: dict[str, str] | None) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger, sasl_options=sasl)
        self._patience = patience
        self._watch = LinkWatch(self._is_answer_due)
        self.handler.watch = self._watch
        self.last_failure: BaseException | None = None
        self._down_since: timedelta | None = None
        self.attached_at = timedelta(0)
        self.told_below: ToldBelow | None = None

    def _is_answer_due(self) -> bool:
        return bool(self.client._pending) or self.ping_outstanding.is_set()

    def _connect(self, host: str, hostip: str, port: int) -> Any:
        self._watch.disarm()
        if self._down_since is None:
            self._down_since = boottime()
        try:
            timeouts = self._connect_and_log_in(host, hostip, port)
        except Exception as exc:
            dropped = isinstance(exc, ConnectionDropped) and exc.__context__ is not None
            self.last_failure = exc.__context__ if dropped else exc
            if isinstance(self.last_failure, KazooTimeoutError | TimeoutError):
                self._patience.timed_out()
            raise
        self._patience.succeeded()
        self._down_since = None
        self._watch.arm(self._socket, self._patience.session_timeout.total_seconds())
        return timeouts

    def _connect_and_log_in(self, host: str, hostip: str, port: int) -> Any:
        try:
            return super()._connect(host, hostip, port)
        except (SASLException, SessionClosedRequireSaslError) as exc:
            raise AuthFailedError(f"SASL was refused ({exc!r})") from exc  # other errors end kazoo's thread

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        """Run a step of kazoo's handshake. Notes the session timeout that the server grants."""
        if not isinstance(request, Connect):
            return super()._invoke(timeout, request, xid)
        if self._session_is_certainly_over():
            # A server refuses a client that has seen a newer transaction than the server has, for any
            # session. In an ensemble that was wiped, all servers do, for ever. So connect like a new client.
            self.client.last_zxid = 0
            request = request._replace(last_zxid_seen=0, session_id=0, passwd=_NO_PASSWORD)
        asked = boottime()
        answer = super()._invoke(min(timeout, self._patience.limit().total_seconds()), request, xid)
        granted_ms = answer[0].time_out
        if granted_ms > 0:  # 0: the session is over
            self.attached_at = asked
            self._patience.granted(timedelta(milliseconds=granted_ms))
        return answer

    def _session_is_certainly_over(self) -> bool:
        down_since = self._down_since
        return down_since is not None and boottime() - down_since > 2 * self._patience.session_timeout

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        self._watch.asked()
        super()._submit(request, timeout, xid)

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        """Also call `told_below`: kazoo itself drops the events of nodes below a watched path."""
        super()._read_watch_event(buffer, offset)
        if self.told_below is not None:
            watch, _ = Watch.deserialize(buffer, offset)
            path = self.client.unchroot(watch.path)
            self.told_below(WatchedEvent(EVENT_TYPE_MAP[watch.type], self.client._state, path))

    def _read(self, length: int, timeout: float) -> Any:
        """Read without a wait if all bytes are here. kazoo waits before both of its reads of an answer."""
        try:
            here = self._socket.take(length)
        except OSError as exc:
            raise ConnectionDropped(f"socket connection error: {exc.strerror or exc}") from exc
        return super()._read(length, timeout) if here is None else here

    def _write(self, msg: Any, timeout: float) -> None:
        """Send without a wait. kazoo first waits for room, which is always there, except on a dead link."""
        try:
            sent = self._socket.send(msg)
        except OSError:
            sent = 0  # kazoo's own send gets the same error, or waits for room
        if sent < len(msg):
            super()._write(msg[sent:], timeout)


class Connector:
    """One KazooClient, and facts from its private parts."""

    def __init__(self, config: ZooKeeperConfig) -> None:
        servers = len(read_hosts(config.hosts).addresses)
        self._patience = Patience(
            configured=config.connect_timeout, servers=servers, session_timeout=config.session_timeout
        )
        auth, sasl = _credentials(config)
        access = default_access(config)
        self.client = KazooClient(
            hosts=config.hosts,
            timeout=config.session_timeout.total_seconds(),
            handler=Handler(self._patience, config.tls.context() if config.tls else None),
            use_ssl=config.tls is not None,  # for kazoo's log: the handler decides
            auth_data=auth,
            default_acl=access
            and [ACL(int(entry.permissions), Id(entry.scheme, entry.id)) for entry in access],
            connection_retry={
                "max_tries": -1,
                "delay": 0.1,
                "backoff": 2,
                "max_jitter": _JITTER,  # on top of the delay
                "max_delay": _MAX_BACKOFF_S / (1 + _JITTER),
            },
            command_retry={"max_tries": 1},
        )
        self._connection = _Connection(self.client, self._patience, sasl)
        self.client._connection = self._connection

    @property
    def negotiated(self) -> timedelta:
        """The session timeout that the server granted; until then, the requested one."""
        return self._patience.session_timeout

    @property
    def attached_at(self) -> timedelta:
        """Time (`boottime`) at which the present connection was requested."""
        return self._connection.attached_at

    @property
    def last_failure(self) -> BaseException | None:
        """Why the last attempt to connect failed."""
        return self._connection.last_failure

    @property
    def has_stopped(self) -> bool:
        """True when kazoo's connection thread has ended. kazoo never starts it again by itself."""
        thread = self._connection._connection_routine  # `connection_stopped` is set before the start, too
        return bool(self._connection.connection_stopped.is_set()) and not (thread and thread.is_alive())

    def tell_below(self, told: ToldBelow) -> None:
        """Call `told` with each watch event."""
        self._connection.told_below = told

    def forget_watcher(self, watcher: Callable[[WatchedEvent], None]) -> None:
        """Drop `watcher`. kazoo itself keeps it until its watches fire, or the connection breaks."""
        for watchers in (self.client._data_watchers, self.client._child_watchers):
            for known in dict(watchers).values():  # a copy: kazoo's thread changes the original
                known.discard(watcher)

    def drop(self) -> None:
        """Cut the connection. kazoo notices at once and reconnects with the same session."""
        stream = self._connection._socket
        if stream is not None:
            stream.cut()


def _credentials(config: ZooKeeperConfig) -> tuple[list[tuple[str, str]] | None, dict[str, str] | None]:
    if config.auth is None:
        return None, None
    scheme, credential = config.auth
    if scheme != SASL:
        return [config.auth], None
    user, _, password = credential.partition(":")
    return None, {"mechanism": "DIGEST-MD5", "username": user, "password": password}


@dataclass(frozen=True)
class AddWatch:
    """The request `addWatch`, in the form that kazoo's connection expects."""

    path: str
    type: ClassVar[int] = 106

    def serialize(self) -> bytes:
        """Encode path and mode."""
        written: bytes = write_string(self.path) + int_struct.pack(_PERSISTENT_RECURSIVE)
        return written

    @classmethod
    def deserialize(cls, _answer: bytes, _offset: int) -> None:
        """Return nothing: the answer has no content."""


def watch_below_async(client: Any, path: str) -> Any:
    """Watch a node, which need not exist, and all nodes below it (`addWatch`). Used like kazoo's `*_async`.

    Such a watch stays until the connection ends, and reports each node below its path that is created,
    deleted or changed. Servers before 3.9 confuse it with another watch of the same session on the same path,
    so a session with such watches should have no others. kazoo has no method for it.

    Source: `org.apache.zookeeper.proto.AddWatchRequest`, ZOOKEEPER-1416, ZOOKEEPER-4466.
    """
    answer = client.handler.async_result()
    client._call(AddWatch(_prefix_root(client.chroot, path)), answer)
    return answer
