"""One ZooKeeper session, with care around kazoo.

What kazoo leaves to its users and this class does: every call has a time limit (since 2.7 requests
queue while it connects, so its synchronous calls hang for as long as the outage lasts); a session id
that changed is reported as a loss; a connection thread that died is started again; stopping is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionClosedError,
    ConnectionLoss,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperStoppedError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from leader.errors import (
    ElectionConfigError,
    ElectionStateError,
    LeaderError,
    ZooKeeperAuthError,
    ZooKeeperUnavailableError,
    ZooKeeperUnreachableError,
)
from leader.zookeeper.kazoo_client import Connector

_log = structlog.get_logger(__name__)

_UNAVAILABLE = (
    ConnectionClosedError,
    ConnectionLoss,
    KazooTimeoutError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    ZookeeperStoppedError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperConfig:
    """Where ZooKeeper is and how patient we are. Checked once, here, then trusted.

    Args:
        hosts: `host:port,host:port/chroot`, as kazoo takes it.
        session_timeout: Asked for; the server may grant less or more (2 to 20 of its ticks).
        call_timeout: Longest wait for one answer.
        connect_timeout: Longest wait for one server to accept a TCP connection.
        auth: Scheme and credential, for example `("digest", "user:password")`. Nodes are then created
            for this credential only.
    """

    hosts: str
    session_timeout: timedelta = timedelta(seconds=10)
    call_timeout: timedelta = timedelta(seconds=10)
    connect_timeout: timedelta = timedelta(seconds=2)
    auth: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        if not self.hosts.strip():
            raise ElectionConfigError("hosts is empty; give at least one host:port")
        for name in ("session_timeout", "call_timeout", "connect_timeout"):
            value: timedelta = getattr(self, name)
            if value <= timedelta(0):
                raise ElectionConfigError(f"{name} ({value}) must be above 0")
        if self.connect_timeout >= self.session_timeout:
            raise ElectionConfigError(
                f"connect_timeout ({self.connect_timeout}) must be below session_timeout "
                f"({self.session_timeout}): otherwise one dead server costs the session; "
                f"lower the one or raise the other"
            )
        if self.auth is not None and ":" not in self.auth[1]:
            raise ElectionConfigError("the credential of auth must look like user:password")


class SessionState(Enum):
    """What is known of the session.

    SUSPENDED: not connected; the session may or may not live. LOST: it is over, its ephemeral nodes are
    gone or will go; a new one is made by itself as soon as a server answers.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


class ZooKeeperSession:
    """See the module. Any thread may use it, except kazoo's own."""

    def __init__(self, config: ZooKeeperConfig) -> None:
        self.config = config
        try:
            self._connector = Connector(
                hosts=config.hosts,
                session_timeout=config.session_timeout,
                connect_timeout=config.connect_timeout,
                auth=config.auth,
            )
        except ValueError as exc:
            raise ElectionConfigError(
                f"hosts {config.hosts!r} cannot be read ({exc}); write host:port"
            ) from exc
        self._state = SessionState.LOST
        self._session_id: int | None = None
        self._generation = 0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._started = False
        self._closed = False
        self._reviving = threading.Lock()
        self._connector.client.add_listener(self._on_state)

    def start(self, timeout: timedelta) -> None:
        """Connect and make sure that we are let in.

        Raises:
            ZooKeeperUnreachableError: No server answered within `timeout`. The session is closed.
            ZooKeeperAuthError: A server answered and refused the credential. The session is closed.
        """
        if self._closed:
            raise ElectionStateError("this session was closed; make a new ZooKeeperSession")
        self._started = True
        self.client.start_async().wait(timeout.total_seconds())
        try:
            self._be_let_in(timeout)
        except LeaderError:
            self.close(self.config.call_timeout)
            raise

    def _be_let_in(self, timeout: timedelta) -> None:
        if self._client_state() == KeeperState.AUTH_FAILED:
            raise self._refused()
        if not self.client.connected:
            raise ZooKeeperUnreachableError(
                f"no ZooKeeper server at {self.config.hosts} answered within {timeout}; "
                f"check that one runs there, and that address, port and firewall let us reach it"
            )
        try:
            # kazoo reports a connection before it has sent the credential, so ask for something.
            if self.call(self.client.exists_async, "/", timeout=timeout) is None:
                self.call(self.client.ensure_path_async, "/", timeout=timeout)  # the chroot, on first use
        except ZooKeeperUnavailableError as exc:
            raise ZooKeeperUnreachableError(
                f"ZooKeeper at {self.config.hosts} accepted a connection but answered no question within "
                f"{timeout}; check that the ensemble has a quorum"
            ) from exc

    @property
    def client(self) -> KazooClient:
        """The kazoo client, for its `*_async` methods and `transaction()`; wait through `call`."""
        return self._connector.client

    @property
    def state(self) -> SessionState:
        """The newest state kazoo told us. Says nothing of the server's view."""
        return self._state

    @property
    def is_connected(self) -> bool:
        """Whether calls have a chance now."""
        return self._state is SessionState.CONNECTED

    @property
    def session_id(self) -> int | None:
        """Id of the present session; the last one while suspended, None after a loss."""
        return self._session_id

    @property
    def generation(self) -> int:
        """How often the connection broke. Equal numbers before and after: it did not in between."""
        return self._generation

    @property
    def negotiated_timeout(self) -> timedelta:
        """The session timeout the server granted, which is the one that counts."""
        return self._connector.negotiated

    def add_listener(self, enqueue: Callable[[SessionState], None]) -> None:
        """Be told of each change of state.

        `enqueue` is called on kazoo's connection thread: it must not block, nor call ZooKeeper.
        """
        self._listeners = [*self._listeners, enqueue]

    def remove_listener(self, enqueue: Callable[[SessionState], None]) -> None:
        """Undo `add_listener`. Nothing happens if it was not added."""
        self._listeners = [known for known in self._listeners if known != enqueue]

    def call(
        self, method: Callable[..., Any], *args: Any, timeout: timedelta | None = None, **kw: Any
    ) -> Any:
        """Call one of kazoo's `*_async` methods and wait for the answer, but not for ever.

        A request that was given up stays in kazoo's queue and may still be sent after a reconnect.
        kazoo sends in order, so a read that follows sees its effect.

        Args:
            method: For example `session.client.get_async`.
            *args: Passed on.
            **kw: Passed on.
            timeout: Longest wait; the configured call timeout if not given.

        Returns:
            What kazoo returns.

        Raises:
            ZooKeeperUnavailableError: No answer; the outcome of a write is unknown.
            ZooKeeperAuthError: The server refused our credential.
            kazoo.exceptions.ZookeeperError: The server's answer, as it is (NoNodeError and so on).
        """
        limit = self.config.call_timeout if timeout is None else timeout
        try:
            return method(*args, **kw).get(timeout=limit.total_seconds())
        except AuthFailedError as exc:
            self.heal()
            raise self._refused() from exc
        except _UNAVAILABLE as exc:
            self.heal()
            what = getattr(method, "__name__", repr(method)).removesuffix("_async")
            advice = "the session is closed" if self._closed else "read what happened, then try again"
            raise ZooKeeperUnavailableError(
                f"ZooKeeper at {self.config.hosts} gave no answer to {what} "
                f"({type(exc).__name__}, limit {limit}); outcome unknown: {advice}",
                retryable=not self._closed,
            ) from exc

    def reconnect(self) -> None:
        """Cut a connection that seems dead, so that kazoo makes another with the same session."""
        self._connector.drop()

    def heal(self) -> None:
        """Start kazoo again if its connection thread ended, which it never does by itself."""
        if not self._started or self._closed:
            return
        if self._client_state() not in (KeeperState.CLOSED, KeeperState.AUTH_FAILED):
            return
        if not self._reviving.acquire(blocking=False):
            return  # somebody else does it
        try:
            if not self._closed and self.client._connection.connection_stopped.is_set():
                _log.warning("zookeeper_client_restarted", hosts=self.config.hosts)
                self.client.start_async()
        finally:
            self._reviving.release()

    def close(self, timeout: timedelta) -> None:
        """End the session; its ephemeral nodes go at once if a server hears it. Safe to repeat.

        kazoo's stop can hang, so it runs on a thread that is left behind after `timeout`.
        """
        if self._closed:
            return
        self._closed = True
        stopper = threading.Thread(target=self._stop, name="leader-session-stop", daemon=True)
        stopper.start()
        stopper.join(timeout.total_seconds())
        if stopper.is_alive():
            _log.warning("zookeeper_stop_hangs", hosts=self.config.hosts, timeout_s=timeout.total_seconds())

    def _stop(self) -> None:
        with self._reviving:
            self.client.stop()
            self.client.close()

    def _client_state(self) -> str:
        state: str = self.client.client_state
        return state

    def _refused(self) -> ZooKeeperAuthError:
        scheme = self.config.auth[0] if self.config.auth else "none"
        return ZooKeeperAuthError(
            f"ZooKeeper at {self.config.hosts} refused our credential (scheme {scheme}); check scheme, user "
            f"and password, and that the server knows the scheme"
        )

    def _on_state(self, state: str) -> None:
        """Kazoo's connection thread: note the state, pass it on, nothing else."""
        if state == KazooState.CONNECTED:
            client_id = self.client.client_id
            session_id = client_id[0] if client_id else None
            if self._session_id is not None and session_id != self._session_id:
                # The server gave us another session without a word about the old one (K2).
                self._enter(SessionState.LOST)
            self._session_id = session_id
            self._enter(SessionState.CONNECTED)
        elif state == KazooState.SUSPENDED:
            self._enter(SessionState.SUSPENDED)
        else:
            self._session_id = None
            self._enter(SessionState.LOST)

    def _enter(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            self._generation += 1
        self._state = state
        for enqueue in self._listeners:
            enqueue(state)
