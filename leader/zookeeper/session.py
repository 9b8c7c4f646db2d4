"""One ZooKeeper session, with care around kazoo.

What kazoo leaves to its users and this class does: every call has a time limit, and nothing is queued for a
connection that is not there (since 2.7 kazoo's calls hang for as long as the outage lasts); a session id
that changed is reported as a loss; a dead link is noticed, see `leader.zookeeper.link`; a connection thread
that died is started again; stopping is bounded; a forked child is kept from the parent's connection.

Listeners and watches of ours run on kazoo's threads, so they only enqueue.
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
from kazoo.protocol.states import KazooState, KeeperState

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
"""While we wait for a first connection: how often we look whether kazoo has given up."""


class ZooKeeperSession:
    """See the module. Any thread may use it, except kazoo's own; no process but the one that made it."""

    def __init__(self, config: ZooKeeperConfig) -> None:
        self.config = config
        self._connector = Connector(config)
        self._pid = os.getpid()
        self._states = SessionStates(config.session_timeout)
        self.liveness = self._states.liveness
        """What is known of the session at this moment, and since when it certainly lives."""
        self._started = False
        self._closed = False
        self._reviving = threading.Lock()
        self._closing = threading.Lock()  # held for a few instructions
        self._stopper: threading.Thread | None = None
        self._connector.client.add_listener(self._on_state)

    def start(self, timeout: timedelta) -> None:
        """Connect and make sure that we are let in.

        Raises:
            ZooKeeperUnreachableError: No server answered within `timeout`. The session is closed.
            ZooKeeperTlsError: A server answered, but not with TLS as it is configured. The session is closed.
            ZooKeeperAuthError: A server answered and refused the credential. The session is closed.
        """
        self._require_own_process()
        if self._closed:
            raise ElectionStateError("this session was closed; make a new ZooKeeperSession")
        self._started = True
        left = Countdown(timeout)
        try:
            self._await_first_connection(left, timeout)
            self._be_let_in(timeout)
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
        live = self.client.start_async()
        while not live.wait(min(_LOOK_AGAIN_S, left.remaining().total_seconds())):
            if self._credential_was_refused():
                raise refusals.credential_refused(self.config)
            if self._connector.has_stopped or not left.remaining():
                raise refusals.unreachable(self.config, timeout, self._connector.last_failure)

    def _be_let_in(self, timeout: timedelta) -> None:
        try:
            # kazoo reports a connection before it has sent the credential, so ask for something.
            if self.call(self.client.exists_async, "/", timeout=timeout) is None:
                self.call(self.client.ensure_path_async, "/", timeout=timeout)  # the chroot, on first use
        except ZooKeeperUnavailableError as exc:
            if self._credential_was_refused():
                raise refusals.credential_refused(self.config) from exc
            raise refusals.silent(self.config, timeout) from exc
        except NoAuthError as exc:
            raise refusals.chroot_closed(self.config) from exc
        except ZookeeperError as exc:
            raise ZooKeeperUnreachableError(
                f"ZooKeeper at {self.config.hosts} answered {type(exc).__name__} to the first question"
            ) from exc

    def _credential_was_refused(self) -> bool:
        """Not by kazoo's state alone: it says CLOSED a moment after it said AUTH_FAILED."""
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
        """The newest state kazoo told us. Says nothing of the server's view."""
        return self._states.state

    @property
    def is_connected(self) -> bool:
        """Whether calls have a chance now."""
        return self.liveness.facts.is_connected

    @property
    def session_id(self) -> int | None:
        """Id of the present session; the last one while suspended, None after a loss."""
        return self.liveness.facts.session_id

    @property
    def generation(self) -> int:
        """How often the connection broke. Equal numbers before and after: it did not in between."""
        return self.liveness.facts.generation

    @property
    def negotiated_timeout(self) -> timedelta:
        """The session timeout the server granted, which is the one that counts."""
        return self._connector.negotiated

    @property
    def answer_limit(self) -> timedelta:
        """Longest wait of an election for one answer: a later one is of no use."""
        return min(self.config.call_timeout, self.negotiated_timeout / 3)

    def add_listener(self, enqueue: Callable[[SessionState], None]) -> None:
        """Be told of each change of state.

        `enqueue` is called on kazoo's connection thread: it must not block, nor call ZooKeeper.
        """
        self._states.add(enqueue)

    def remove_listener(self, enqueue: Callable[[SessionState], None]) -> None:
        """Undo `add_listener`. Nothing happens if it was not added."""
        self._states.remove(enqueue)

    def call(
        self, method: Callable[..., Any], *args: Any, timeout: timedelta | None = None, **kw: Any
    ) -> Any:
        """Call one of kazoo's `*_async` methods and wait for the answer, but not for ever.

        Without a connection it waits for one first, with the request in hand: kazoo's queue has no end.
        A request that was sent and then given up may still be carried out. ZooKeeper keeps the order, so a
        read that follows over the same connection sees its effect.

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
            ForkedError: This process is a child of the one that made the session.
            kazoo.exceptions.ZookeeperError: The server's answer, as it is (NoNodeError and so on).
        """
        self._require_own_process()
        limit = self.config.call_timeout if timeout is None else timeout
        name = getattr(method, "__name__", repr(method)).removesuffix("_async")
        left = limit if self.is_connected else self._await_connection(name, limit)
        try:
            return method(*args, **kw).get(timeout=left.total_seconds())
        except refusals.REFUSED as exc:
            self.heal()
            raise refusals.credential_refused(self.config) from exc
        except refusals.UNAVAILABLE as exc:
            self.heal()
            raise refusals.unanswered(self.config, name, limit, exc, closed=self._closed) from exc

    def _await_connection(self, name: str, limit: timedelta) -> timedelta:
        """Wait while kazoo connects. Returns what is left of the limit."""
        left = Countdown(limit)
        if self._states.wait_for(lambda: not self._is_connecting(), limit):
            return left.remaining()
        raise refusals.not_sent(self.config, name, limit)

    def _is_connecting(self) -> bool:
        if self._closed or self.is_connected:
            return False
        return self._client_state() in (KeeperState.CONNECTING, KeeperState.EXPIRED_SESSION)

    @property
    def last_zxid(self) -> int:
        """The last transaction that a server had done when it answered us; from memory. 0: none is known."""
        return int(self.client.last_zxid)

    def tell_below(self, told: ToldBelow) -> None:
        """Say who is told of what `watch_below` sees. It is called on kazoo's thread, so it only enqueues."""
        self._require_own_process()
        self._connector.tell_below(told)

    def watch_below(self, path: str) -> None:
        """Watch a node and all below it, until the connection breaks: then `generation` changes.

        Raises:
            ZooKeeperUnavailableError: No answer.
        """
        self.call(watch_below_async, self.client, path)

    def reconnect(self) -> None:
        """Cut a connection that seems dead, so that kazoo makes another with the same session."""
        self._require_own_process()
        self._connector.drop()

    def heal(self) -> None:
        """Start kazoo again if its connection thread ended, which it never does by itself."""
        self._require_own_process()
        if not self._started or self._closed:
            return
        if self._client_state() not in (KeeperState.CLOSED, KeeperState.AUTH_FAILED):
            return
        if not self._reviving.acquire(blocking=False):
            return  # somebody else does it
        try:
            if not self._closed and self._connector.has_stopped:
                _log.warning("zookeeper_client_restarted", hosts=self.config.hosts)
                self.client.start_async()
        except Exception:  # noqa: BLE001 - no thread or no file to be had: the next call tries again
            _log.warning("zookeeper_client_not_restarted", hosts=self.config.hosts, exc_info=True)
        finally:
            self._reviving.release()

    def close(self, timeout: timedelta) -> None:
        """End the session; its ephemeral nodes go at once if a server hears it. Safe to repeat.

        kazoo's stop can hang, so it runs on a thread that is left behind after `timeout`. In a forked child
        nothing is done: the session is its parent's.
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

    def _require_own_process(self) -> None:
        if os.getpid() != self._pid:
            raise ForkedError(made_in=self._pid)

    def _on_state(self, state: str) -> None:
        """Kazoo's connection thread: note the state, pass it on, nothing else."""
        if state == KazooState.CONNECTED:
            client_id = self.client.client_id
            session_id = client_id[0] if client_id else None
            self._states.connected(session_id, self._connector.attached_at, self._connector.negotiated)
        elif state == KazooState.SUSPENDED:
            self._states.suspended()
        else:
            self._states.lost()
