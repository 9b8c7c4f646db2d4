"""Latches for a test, with records of their listeners' calls. All are closed at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from datetime import timedelta
from types import TracebackType

from kazoo.client import KazooClient

from leader.clock import Clock, boottime
from leader.core.latch.machine import SuspendedPolicy
from leader.errors import ZooKeeperUnavailableError
from leader.latch import CloseMode, LatchConfig, LatchState, LeaderLatch
from leader.zookeeper.operations import read_latches
from leader.zookeeper.session import ZooKeeperConfig, ZooKeeperSession

LONG = timedelta(seconds=20)
PATIENT = timedelta(seconds=6)
"""A session timeout for tests in which no session may expire, even on a busy machine."""


class Heard:
    """A listener that records its calls. `then` is called after each, on the listener's thread."""

    def __init__(self, then: Callable[[str], None] = lambda _word: None) -> None:
        self.words: list[str] = []
        self.then = then

    def is_leader(self) -> None:
        self.words.append("is")
        self.then("is")

    def not_leader(self) -> None:
        self.words.append("not")
        self.then("not")


class Member:
    """One latch and its listener."""

    def __init__(self, latch: LeaderLatch, session: ZooKeeperSession, executor: Executor | None) -> None:
        self.latch, self.session, self.heard = latch, session, Heard()
        latch.add_listener(self.heard, executor)

    @property
    def leads(self) -> bool:
        return self.latch.has_leadership()

    @property
    def words(self) -> list[str]:
        return self.heard.words


class Latches:
    """Makes sessions and latches in one queue."""

    def __init__(self, hosts: str, path: str, session_timeout: timedelta = PATIENT) -> None:
        self.hosts, self.path, self._session_timeout = hosts, path, session_timeout
        self.members: list[Member] = []
        self._sessions: list[ZooKeeperSession] = []
        self._shared: ZooKeeperSession | None = None

    def __enter__(self) -> Latches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        closing = [
            threading.Thread(
                target=member.latch.close,
                kwargs={"timeout": timedelta(seconds=5 if member.session.is_connected else 0.2)},
            )
            for member in self.members
        ]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
        for session in self._sessions:
            session.close(LONG)

    @property
    def shared(self) -> ZooKeeperSession:
        """One session for all latches that do not need their own, as in Curator's tests."""
        if self._shared is None:
            self._shared = self.session()
        return self._shared

    def session(
        self, hosts: str | None = None, *, timeout: timedelta | None = None, start: bool = True
    ) -> ZooKeeperSession:
        asked = timeout or self._session_timeout
        config = ZooKeeperConfig(
            hosts=hosts or self.hosts,
            session_timeout=asked,
            connect_timeout=min(timedelta(seconds=1), asked / 2),
        )
        self._sessions.append(ZooKeeperSession(config))
        if start:
            self._sessions[-1].start(LONG)
        return self._sessions[-1]

    def latch(
        self,
        name: str = "",
        session: ZooKeeperSession | None = None,
        *,
        policy: SuspendedPolicy = SuspendedPolicy.STANDARD,
        close_mode: CloseMode = CloseMode.SILENT,
        executor: Executor | None = None,
        clock: Clock = boottime,
    ) -> Member:
        """A latch that is not started."""
        session = session or self.shared
        config = LatchConfig(
            path=self.path,
            id=name,
            suspended_policy=policy,
            close_mode=close_mode,
            step_down_margin=min(timedelta(seconds=1), self._session_timeout / 8),
        )
        self.members.append(Member(LeaderLatch(session, config, clock=clock), session, executor))
        return self.members[-1]

    def started(self, name: str = "", session: ZooKeeperSession | None = None, **options: object) -> Member:
        member = self.latch(name, session, **options)  # type: ignore[arg-type]
        member.latch.start()
        return member

    def queued(
        self, count: int, eventually: Callable[..., None], *, own_sessions: bool = False, **options: object
    ) -> list[Member]:
        """Start latches one after the other, so that they queue in this order."""
        made: list[Member] = []
        for number in range(count):
            session = self.session() if own_sessions else None
            made.append(self.started(f"id{number}", session, **options))
            eventually(lambda: len(self.nodes()) == len(made), what=f"latch {number} stands in the queue")
        return made

    def leaders(self) -> list[Member]:
        return [member for member in self.members if member.leads]

    def nodes(self) -> list[str]:
        """The queue, oldest first; empty while it cannot be read."""
        try:
            return [view.node for view in read_latches(self.shared, self.path)]
        except ZooKeeperUnavailableError:
            return []

    def make_queue(self) -> None:
        """Create the queue, so that the first create of a latch succeeds."""
        self.shared.call(self.shared.client.ensure_path_async, self.path)

    def delete(self, node: str | None) -> None:
        """Delete a node like an operator."""
        self.shared.call(self.shared.client.delete_async, f"{self.path}/{node}")

    @property
    def all_closed(self) -> bool:
        return all(member.latch.state is LatchState.CLOSED for member in self.members)


def end_session(hosts: str, session: ZooKeeperSession) -> None:
    """End a session at the server, as if it had expired."""
    client = session.client
    # Not `client_id`, which is None without a connection.
    thief = KazooClient(hosts=hosts, client_id=(client._session_id, client._session_passwd))
    thief.start(timeout=LONG.total_seconds())
    thief.stop()
    with suppress(Exception):
        thief.close()
