"""A driver whose core asks a ZooKeeper session, and hears of it."""

from __future__ import annotations

from typing import Protocol

from leader.clock import Clock
from leader.core.latch import events as latch_ev
from leader.journal import DeferredJournal
from leader.protocol.requests import Steps
from leader.runtime.driver import Core, Driver, Job
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import SessionState, ZooKeeperSession


class SessionCore(Core, Protocol):
    """What a session driver can run."""

    def heard(self, path: str, gone: bool) -> Steps[None]:
        """A watch has fired."""
        ...

    def link(self, event: latch_ev.LinkEvent) -> Steps[None]:
        """The session changed its state."""
        ...


class SessionDriver(Driver):
    """See the module.

    Args:
        core: See `Driver`.
        session: Started; stays the caller's.
        journal: See `Driver`.
        name: See `Driver`.
        on_end: See `Driver`.
    """

    def __init__(
        self,
        core: SessionCore,
        session: ZooKeeperSession,
        *,
        clock: Clock,
        journal: DeferredJournal,
        name: str,
        on_end: Job = lambda: None,
    ) -> None:
        self._heard, self._linked, self._session = core.heard, core.link, session
        super().__init__(
            core,
            SessionExecutor(session, self._on_watch).run,
            last_wait=lambda: session.negotiated_timeout / 3,
            clock=clock,
            journal=journal,
            name=name,
            on_end=on_end,
        )

    def start(self) -> None:
        """See `Driver`. The core is told that the link is up, if it is."""
        self._session.add_listener(self._on_session)
        if self._session.is_connected:
            self._on_session(SessionState.CONNECTED)
        try:
            super().start()
        except RuntimeError:
            self._session.remove_listener(self._on_session)
            raise

    def _end(self) -> None:
        try:
            super()._end()
        finally:
            self._session.remove_listener(self._on_session)

    def _on_watch(self, path: str, gone: bool) -> None:
        """Kazoo's connection thread: only enqueue."""
        if path:
            self.post(lambda: self._heard(path, gone))

    def _on_session(self, state: SessionState) -> None:
        """Kazoo's connection thread: only enqueue."""
        event = link_event(state, self._session.session_id)
        if event is not None:
            self.post(lambda: self._linked(event))


def link_event(state: SessionState, session_id: int | None) -> latch_ev.LinkEvent | None:
    """Put a session's state into a latch's words."""
    if state is SessionState.CONNECTED:
        return None if session_id is None else latch_ev.LinkUp(session_id)
    return latch_ev.LinkDown() if state is SessionState.SUSPENDED else latch_ev.SessionGone()
