"""Participants of one election, with records of their calls. All are closed at the test's end."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType

from leader import (
    ElectionConfig,
    LeaderLockQueue,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    ZooKeeperUnavailableError,
    read_participants,
)
from leader.clock import Clock, boottime
from leader.protocol.paths import ElectionPaths
from leader.protocol.view import ParticipantView
from tests.leader.integration.curator.latches import LONG, PATIENT

Eventually = Callable[..., None]


class Candidate:
    """One participant with its electable. `then` is called with the name of each call, after it."""

    def __init__(self, session: ZooKeeperSession, config: ElectionConfig, name: str, clock: Clock) -> None:
        self.name, self.session = name, session
        self.told: list[tuple[str, int]] = []
        self.reasons: list[str] = []
        self.guard: Callable[[], Verdict] = lambda: Verdict(True)
        self.then: Callable[[str], None] = lambda _word: None
        self.queue = LeaderLockQueue(
            session=session,
            config=config,
            participant=Participant(name, "127.0.0.1", 1, uuid.uuid4().hex),
            guard=self._answer,
            electable=self,
            clock=clock,
        )

    def _answer(self) -> Verdict:
        return self.guard()

    def elected(self, leadership: Leadership) -> None:
        self.told.append(("elected", leadership.epoch))
        self.then("elected")

    def revoked(self, leadership: Leadership, reason: str) -> None:
        self.told.append(("revoked", leadership.epoch))
        self.reasons.append(reason)
        self.then("revoked")

    @property
    def leads(self) -> bool:
        return self.queue.is_leader()

    @property
    def words(self) -> list[str]:
        return [word for word, _ in self.told]

    @property
    def epochs(self) -> list[int]:
        return [epoch for word, epoch in self.told if word == "elected"]


class Participants:
    """Makes sessions and participants of one election."""

    def __init__(self, hosts: str, root: str, session_timeout: timedelta = PATIENT) -> None:
        self.hosts, self.root, self._session_timeout = hosts, root, session_timeout
        self.candidates: list[Candidate] = []
        self._sessions: list[ZooKeeperSession] = []
        self._witness: ZooKeeperSession | None = None

    def __enter__(self) -> Participants:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        closing = [
            threading.Thread(
                target=one.queue.close, args=(timedelta(seconds=5 if one.session.is_connected else 0.2),)
            )
            for one in self.candidates
        ]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()
        for session in self._sessions:
            session.close(LONG)

    @property
    def witness(self) -> ZooKeeperSession:
        """A session without a participant."""
        if self._witness is None:
            self._witness = self.session()
        return self._witness

    def session(self, hosts: str | None = None, *, auth: tuple[str, str] | None = None) -> ZooKeeperSession:
        config = ZooKeeperConfig(
            hosts=hosts or self.hosts,
            session_timeout=self._session_timeout,
            connect_timeout=min(timedelta(seconds=1), self._session_timeout / 2),
            auth=auth,
        )
        self._sessions.append(ZooKeeperSession(config))
        self._sessions[-1].start(LONG)
        return self._sessions[-1]

    def candidate(
        self,
        name: str,
        session: ZooKeeperSession | None = None,
        *,
        clock: Clock = boottime,
        **options: object,
    ) -> Candidate:
        """A participant that is not in the queue yet, on its own session."""
        settings: dict[str, object] = {
            "root": self.root,
            "guard_timeout": timedelta(seconds=20),
            "requeue_backoff_min": timedelta(milliseconds=100),
            "requeue_backoff_max": timedelta(milliseconds=300),
            "step_down_margin": min(timedelta(seconds=1), self._session_timeout / 8),
        }
        config = ElectionConfig(**(settings | options))  # type: ignore[arg-type]
        self.candidates.append(Candidate(session or self.session(), config, name, clock))
        return self.candidates[-1]

    def queued(self, eventually: Eventually, *names: str, **options: object) -> list[Candidate]:
        """Let participants join one after the other, so that they queue in this order."""
        made: list[Candidate] = []
        for name in names:
            made.append(self.candidate(name, **options))  # type: ignore[arg-type]
            made[-1].queue.add_to_leader_lock_queue()
            eventually(lambda: len(self.ids()) == len(made), what=f"{name} queues")
        eventually(lambda: made[0].leads and made[0].words == ["elected"], what=f"{names[0]} leads")
        return made

    def make_queue(self) -> None:
        """Create the queue, so that the first create of a latch succeeds."""
        client = self.witness.client
        self.witness.call(client.ensure_path_async, ElectionPaths(self.root).queue)

    def ids(self) -> list[str]:
        """The queue, oldest first; empty while it cannot be read."""
        return [view.participant.id for view in self._views()]

    def nodes(self) -> list[str]:
        return [view.node for view in self._views()]

    def leaders(self) -> list[Candidate]:
        return [one for one in self.candidates if one.leads]

    def _views(self) -> list[ParticipantView]:
        try:
            return read_participants(self.witness, self.root)
        except ZooKeeperUnavailableError:
            return []
