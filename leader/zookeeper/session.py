"""One ZooKeeper session, over kazoo.

kazoo does not do the following; this class does:

- Every call has a time limit, and no request is queued without a connection. (Since 2.7, kazoo's calls hang
  for as long as the outage lasts.)
- A changed session id is reported as a loss of the session.
- A dead link is noticed, see `leader.zookeeper.link`.
- A connection thread that has died is started again.
- Stopping has a time limit.
- A forked child cannot use its parent's connection.

Listeners and watches run on kazoo's threads, so they only enqueue.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError, ZookeeperError
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent
from kazoo.security import OPEN_ACL_UNSAFE

from leader.clock import Countdown
from leader.errors import (
    ElectionStateError,
    ForkedError,
    LeaderError,
    ZooKeeperUnavailableError,
    ZooKeeperUnreachableError,
)
from leader.zookeeper import refusals
from leader.zookeeper.config import ZooKeeperConfig
from leader.zookeeper.kazoo_client import Connector, ToldBelow, watch_below_async
from leader.zookeeper.states import SessionState, SessionStates

__all__ = ["SessionState", "ZooKeeperConfig", "ZooKeeperSession"]

_log = structlog.get_logger(__name__)

_LOOK_AGAIN_S = 0.1
"""Interval in seconds between checks whether kazoo has given up, while `start` waits for a connection."""


class ZooKeeperSession:
    """See the module. Any thread of the process that created it may use it, except kazoo's own."""

    def __init__(self, config: ZooKeeperConfig) -> None:
        self.config = config
        self._connector = Connector(config)
        self._pid = os.getpid()
        self._states = SessionStates(config.session_timeout)
        self.liveness = self._states.liveness
        """The session facts at this moment, and the time since which the session is certainly alive."""
        self._started = False
        self._closed = False
        self._reviving = threading.Lock()
        self._closing = threading.Lock()  # held for a few instructions
        self._stopper: threading.Thread | None = None
        self._connector.client.add_listener(self._on_state)

    def start(self, timeout: timedelta) -> None:
        """Connect, and check that the server accepts the credential.

        Raises:
            ZooKeeperUnreachableError: No server answered within `timeout`. The session is closed.
            ZooKeeperTlsError: A server answered, but not with TLS as configured. The session is closed.
            ZooKeeperAuthError: A server answered and refused the credential. The session is closed.
            ElectionStateError: The session was closed before.
        """
        self._require_own_process()
        self._require_open()
        left = Countdown(timeout)
        try:
            self._await_first_connection(left, timeout)
            self._send_first_request(left, timeout)
        except LeaderError:
            self.close(self.config.call_timeout)
            raise
        if self.negotiated_timeout != self.config.session_timeout:
            _log.warning(
                "zookeeper_session_timeout_changed",
                hosts=self.config.hosts,
                asked_s=self.config.session_timeout.total_seconds(),
                granted_s=self.negotiated_timeout.total_seconds(),
            )

    def _await_first_connection(self, left: Countdown, timeout: timedelta) -> None:
        with self._reviving:  # an election that began before must not start it, too
            self._require_open()
            live = self.client.start_async()
            self._started = True
        while not live.wait(min(_LOOK_AGAIN_S, left.remaining().total_seconds())):
            if self._credential_was_refused():
                raise refusals.credential_refused(self.config)
            if self._connector.has_stopped or not left.remaining():
                raise refusals.unreachable(self.config, timeout, self._connector.last_failure)

    def _send_first_request(self, left: Countdown, timeout: timedelta) -> None:
        try:
            # kazoo reports a connection before it has sent the credential, so check with one request.
            if self.call(self.client.exists_async, "/", timeout=left.remaining()) is None:
                self._make_chroot(left.remaining())
        except ZooKeeperUnavailableError as exc:
            if self._credential_was_refused():
                raise refusals.credential_refused(self.config) from exc
            raise refusals.silent(self.config, timeout) from exc
        except NoAuthError as exc:
            raise refusals.chroot_closed(self.config) from exc
        except ZookeeperError as exc:
            raise ZooKeeperUnreachableError(
                f"ZooKeeper at {self.config.hosts} answered {type(exc).__name__} to the first request"
            ) from exc

    def _make_chroot(self, timeout: timedelta) -> None:
        """Create the chroot and the nodes above it. No other thread uses the client yet."""
        client, chroot = self.client, self.client.chroot
        client.chroot = ""  # kazoo creates nodes below the chroot only
        try:
            self.call(client.ensure_path_async, chroot, OPEN_ACL_UNSAFE, timeout=timeout)
        finally:
            client.chroot = chroot

    def ensure_above(self, path: str) -> None:
        """Create the nodes above a root that does not exist, open for the roots of others.

        ZooKeeperUnavailableError without an answer; kazoo's NoAuthError if an access list above forbids it.
        """
        above = path.rpartition("/")[0]
        if above and self.call(self.client.exists_async, path) is None:
            self.call(self.client.ensure_path_async, above, OPEN_ACL_UNSAFE)

    def _credential_was_refused(self) -> bool:
        """True when the server refused it. kazoo's state alone is not enough: it soon changes to CLOSED."""
        if self._client_state() == KeeperState.AUTH_FAILED:
            return True
        return isinstance(self._connector.last_failure, refusals.REFUSED)

    @property
    def client(self) -> KazooClient:
        """The kazoo client, for its `*_async` methods and `transaction()`; wait through `call`."""
        self._require_own_process()
        return self._connector.client

    @property
    def state(self) -> SessionState:
        """The newest state that kazoo reported. The server may know more."""
        return self._states.state

    @property
    def is_connected(self) -> bool:
        """True while there is a connection."""
        return self.liveness.facts.is_connected

    @property
    def session_id(self) -> int | None:
        """Id of the present session; the last one while suspended, None after a loss."""
        return self.liveness.facts.session_id

    @property
    def generation(self) -> int:
        """Rises by one or two when the connection breaks. If two reads are equal, it did not break."""
        return self.liveness.facts.generation

    @property
    def negotiated_timeout(self) -> timedelta:
        """The session timeout in force: granted by the server, or, before that, the requested one."""
        return self._connector.negotiated

    @property
    def answer_limit(self) -> timedelta:
        """Limit of an election's wait for one answer. A later answer is useless."""
        return min(self.config.call_timeout, self.negotiated_timeout / 3)

    def add_listener(self, enqueue: Callable[[SessionState], None]) -> None:
        """Call `enqueue` at each change of state.

        It is called on kazoo's connection thread: it must not block, nor call ZooKeeper.
        """
        self._states.add(enqueue)

    def remove_listener(self, enqueue: Callable[[SessionState], None]) -> None:
        """Undo `add_listener`. Does nothing if it was not added."""
        self._states.remove(enqueue)

    def call(
        self,
        method: Callable[..., Any],
        *args: Any,
        timeout: timedelta | None = None,
        patience: timedelta | None = None,
        **kw: Any,
    ) -> Any:
        """Call one of kazoo's `*_async` methods and wait for the answer, with a time limit.

        Without a connection it first waits for one, and only then calls `method`, because kazoo queues
        requests without a limit. A request that got no answer in time may still be executed. ZooKeeper keeps
        the order, so a later read over the same connection sees its effect.

        Args:
            method: For example `session.client.get_async`.
            *args: Passed on.
            **kw: Passed on.
            timeout: Limit of the wait. By default, the configured call timeout.
            patience: Limit of the part of it that waits for a connection. By default, all of it.

        Returns:
            What kazoo returns.

        Raises:
            ZooKeeperUnavailableError: No answer; the outcome of a write is unknown.
            ZooKeeperAuthError: The server refused the credential.
            ForkedError: This process is a forked child of the one that created the session.
            kazoo.exceptions.ZookeeperError: The server's answer is an error (NoNodeError and so on).
        """
        self._require_own_process()
        limit = self.config.call_timeout if timeout is None else timeout
        name = getattr(method, "__name__", repr(method)).removesuffix("_async")
        left = limit if self.is_connected else self._await_connection(name, limit, patience or limit)
        try:
            return method(*args, **kw).get(timeout=left.total_seconds())
        except refusals.REFUSED as exc:
            self.heal()
            raise refusals.credential_refused(self.config) from exc
        except refusals.UNAVAILABLE as exc:
            self.heal()
            raise refusals.unanswered(self.config, name, limit, exc, closed=self._closed) from exc

    def await_connection(self, patience: timedelta | None = None) -> None:
        """Wait for a connection, before requests that are sent together.

        ZooKeeperUnavailableError if there is none within `patience`, by default the call timeout.
        """
        if not self.is_connected:
            limit = self.config.call_timeout
            self._await_connection("a group of requests", limit, patience or limit)

    def _await_connection(self, name: str, limit: timedelta, patience: timedelta) -> timedelta:
        """Wait while kazoo connects. Returns the remaining part of `limit`."""
        left = Countdown(limit)
        if self._states.wait_for(lambda: not self._is_connecting(), patience):
            return left.remaining()
        raise refusals.not_sent(self.config, name, patience)

    def _is_connecting(self) -> bool:
        if self._closed or self.is_connected:
            return False
        return self._client_state() in (KeeperState.CONNECTING, KeeperState.EXPIRED_SESSION)

    @property
    def last_zxid(self) -> int:
        """The newest transaction id that a server has sent with an answer; 0: none yet. No I/O."""
        return int(self.client.last_zxid)

    def tell_below(self, told: ToldBelow) -> None:
        """Call `told` with each event of `watch_below`. On kazoo's thread, so it must only enqueue."""
        self._require_own_process()
        self._connector.tell_below(told)

    def watch_below(self, path: str) -> None:
        """Watch a node and all nodes below it until the connection breaks; then `generation` changes.

        ZooKeeperUnavailableError without an answer.
        """
        self.call(watch_below_async, self.client, path)

    def forget_watcher(self, watcher: Callable[[WatchedEvent], None]) -> None:
        """Drop a callable that was given to kazoo as `watch`, so that a long session does not keep it."""
        if os.getpid() == self._pid:
            self._connector.forget_watcher(watcher)

    def reconnect(self) -> None:
        """Cut a connection that seems dead, so that kazoo makes another with the same session."""
        self._require_own_process()
        self._connector.drop()

    def heal(self) -> None:
        """Start kazoo again if its connection thread has ended. kazoo itself never does so."""
        self._require_own_process()
        if not self._started or self._closed:
            return
        if self._client_state() not in (KeeperState.CLOSED, KeeperState.AUTH_FAILED):
            return
        if not self._reviving.acquire(blocking=False):
            return  # another thread is doing it
        try:
            if not self._closed and self._connector.has_stopped:
                _log.warning("zookeeper_client_restarted", hosts=self.config.hosts)
                self.client.start_async()
        except Exception:  # noqa: BLE001 - the system has no thread or file left: the next call tries again
            _log.warning("zookeeper_client_not_restarted", hosts=self.config.hosts, exc_info=True)
        finally:
            self._reviving.release()

    def close(self, timeout: timedelta) -> None:
        """End the session. Safe to repeat.

        A server that gets the request deletes the ephemeral nodes at once. kazoo's stop can hang, so it runs
        on a thread that is left running after `timeout`. Does nothing in a forked child: the session belongs
        to the parent.
        """
        if os.getpid() != self._pid:
            return
        with self._closing:
            stopper = self._stopper
            if stopper is None:
                self._closed = True
                self._states.wake()
                stopper = threading.Thread(target=self._stop, name="leader-session-stop", daemon=True)
                stopper.start()
                self._stopper = stopper
        stopper.join(timeout.total_seconds())
        if stopper.is_alive():
            _log.warning("zookeeper_stop_hangs", hosts=self.config.hosts, timeout_s=timeout.total_seconds())

    def _stop(self) -> None:
        with self._reviving:
            self._connector.client.stop()
            self._connector.client.close()

    def _client_state(self) -> str:
        state: str = self._connector.client.client_state
        return state

    def _require_open(self) -> None:
        if self._closed:
            raise ElectionStateError("this session was closed; make a new ZooKeeperSession")

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(made_in=self._pid)

    def _on_state(self, state: str) -> None:
        """On kazoo's connection thread: note the state and call the listeners, nothing else."""
        if state == KazooState.CONNECTED:
            client_id = self.client.client_id
            session_id = client_id[0] if client_id else None
            self._states.connected(session_id, self._connector.attached_at, self._connector.negotiated)
        elif state == KazooState.SUSPENDED:
            self._states.suspended()
        else:
            self._states.lost()
