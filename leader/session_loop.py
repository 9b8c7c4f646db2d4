"""A loop whose core asks a ZooKeeper session, and hears of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from leader.clock import Clock
from leader.journal import DeferredJournal
from leader.latch import events as latch_ev
from leader.loop import Core, Loop
from leader.protocol.requests import Steps
from leader.zookeeper.executor import SessionExecutor
from leader.zookeeper.session import SessionState, ZooKeeperSession

LinkEvent = latch_ev.LinkUp | latch_ev.LinkDown | latch_ev.SessionGone


class SessionCore(Core, Protocol):
    """What a session loop can drive."""

    def heard(self, path: str, gone: bool) -> Steps[None]:
        """A watch has fired."""
        ...

    def link(self, event: LinkEvent) -> Steps[None]:
        """The session changed its state."""
        ...


class SessionLoop(Loop):
    """See the module.

    Args:
        core: See `Loop`.
        session: Started; stays the caller's.
        journal: See `Loop`.
        name: See `Loop`.
    """

    def __init__(
        self,
        core: SessionCore,
        session: ZooKeeperSession,
        *,
        clock: Clock,
        journal: DeferredJournal,
        name: str,
    ) -> None:
        self._heard, self._linked, self._session = core.heard, core.link, session
        executor = SessionExecutor(session, self._on_watch, on_sent=self.sent)
        super().__init__(
            core,
            executor.run,
            last_wait=lambda: session.negotiated_timeout / 3,
            clock=clock,
            journal=journal,
            name=name,
            foresee=executor.foresee,
        )

    def start(self, *, errands: bool) -> None:
        """See `Loop`. The core is told that the link is up, if it is."""
        super().start(errands=errands)
        self._session.add_listener(self._on_session)
        if self._session.is_connected:
            self._on_session(SessionState.CONNECTED)

    def stop(self, timeout: timedelta) -> bool:
        """See `Loop`."""
        if self.drives:
            return True
        ended = super().stop(timeout)
        self._session.remove_listener(self._on_session)
        return ended

    def _on_watch(self, path: str, gone: bool) -> None:
        """Kazoo's connection thread: only enqueue."""
        if path:
            self.post(lambda: self._heard(path, gone))

    def _on_session(self, state: SessionState) -> None:
        """Kazoo's connection thread: only enqueue."""
        event = link_event(state, self._session.session_id)
        if event is not None:
            self.post(lambda: self._linked(event))


def link_event(state: SessionState, session_id: int | None) -> LinkEvent | None:
    """Put a session's state into a latch's words."""
    if state is SessionState.CONNECTED:
        return None if session_id is None else latch_ev.LinkUp(session_id)
    return latch_ev.LinkDown() if state is SessionState.SUSPENDED else latch_ev.SessionGone()
