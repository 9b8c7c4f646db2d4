"""Nodes of an election service, and contenders that record their calls."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from leader import (
    ElectionConfig,
    LeaderError,
    LeaderLockQueue,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from leader.elector import Electable
from leader.flink.service import LeaderElection, LeaderElectionService

LONG = timedelta(seconds=60)
Published = Callable[[str], tuple[str, int, UUID, str] | None]
"""Reads what is published for a component: participant, epoch, session, address."""


class Contender:
    """Confirms each grant with its address, unless the test forbids it, and records its calls."""

    def __init__(self, description: str = "contender") -> None:
        self.description = description
        self.election: LeaderElection | None = None
        self.told: list[str] = []
        self.sessions: list[UUID] = []
        self.errors: list[LeaderError] = []
        self.threads: set[str] = set()
        self.on_grant: Callable[[UUID], None] = lambda _session: None
        self.on_revoke: Callable[[], None] = lambda: None
        self.address: str | None = f"{description}:1"

    def grant(self, session: UUID) -> None:
        self.threads.add(threading.current_thread().name)
        self.sessions.append(session)
        self.told.append("grant")
        self.on_grant(session)
        if self.election is not None and self.address is not None:
            self.election.confirm_leadership(session, self.address)

    def revoke(self) -> None:
        self.threads.add(threading.current_thread().name)
        self.told.append("revoke")
        self.on_revoke()

    def handle_error(self, error: LeaderError) -> None:
        self.errors.append(error)


class Node:
    """One participant with a service."""

    def __init__(self, hosts: str, root: str, name: str, **settings: Any) -> None:
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=timedelta(seconds=6)))
        self.session.start(LONG)
        self.root, self.name, self.settings = root, name, settings
        self.service = LeaderElectionService(elect=self._elect, root=root, session=self.session)

    def _elect(self, electable: Electable) -> LeaderLockQueue:
        defaults: dict[str, Any] = {
            "root": self.root,
            "requeue_backoff_min": timedelta(milliseconds=100),
            "requeue_backoff_max": timedelta(milliseconds=400),
            "step_down_margin": timedelta(milliseconds=400),
        }
        return LeaderLockQueue(
            session=self.session,
            config=ElectionConfig(**(defaults | self.settings)),
            participant=Participant(self.name, "127.0.0.1", 1, uuid.uuid4().hex),
            guard=lambda: Verdict(True),
            electable=electable,
        )

    def contend(self, component: str) -> Contender:
        contender = Contender(f"{self.name}-{component}")
        contender.election = self.service.election(component)
        contender.election.start(contender)
        return contender

    def end(self) -> None:
        self.service.stop(LONG)
        self.session.close(LONG)
