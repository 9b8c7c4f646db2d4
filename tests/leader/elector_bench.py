"""Electors of every kind, behind one interface, for the contract suites."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from leader import (
    ElectionConfig,
    Elector,
    FencingToken,
    Journal,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
    fenced_transaction,
)
from leader.factory import ElectorSetup, make_elector
from leader.local.memory import MemoryElection, MemoryElector

LONG = timedelta(seconds=60)
SHARED = ("zookeeper", "memory")
ALL = (*SHARED, "single")


class Member:
    """One participant: its elector, a guard that the test controls, and the calls that it got."""

    def __init__(self, kind: str, name: str, parts: dict[str, Any], settings: dict[str, Any]) -> None:
        self.session: ZooKeeperSession | None = parts.get("session")
        self.told: list[tuple[str, int]] = []
        self.reasons: list[str] = []
        self.terms: list[Leadership] = []
        self.guard: Callable[[], Verdict] = lambda: Verdict(True)
        self.asked = 0
        self.on_elected: Callable[[Leadership], None] = lambda _leadership: None
        self.on_revoked: Callable[[Leadership], None] = lambda _leadership: None
        parts |= {
            "config": ElectionConfig(**settings),
            "participant": Participant(name, "127.0.0.1", 1, uuid.uuid4().hex),
            "guard": self._answer,
            "electable": self,
        }
        self.elector: Elector = (
            MemoryElector(parts.pop("election"), **parts)
            if kind == "memory"
            else make_elector(kind, ElectorSetup(**parts))
        )

    def _answer(self) -> Verdict:
        self.asked += 1
        return self.guard()

    def elected(self, leadership: Leadership) -> None:
        self.on_elected(leadership)
        self.terms.append(leadership)
        self.told.append(("elected", leadership.epoch))

    def revoked(self, leadership: Leadership, reason: str) -> None:
        self.on_revoked(leadership)
        self.reasons.append(reason)
        self.told.append(("revoked", leadership.epoch))


class Bench:
    """Makes the members of one election, of one kind."""

    def __init__(self, kind: str, root: str, hosts: str) -> None:
        self.kind, self._root, self._hosts = kind, root, hosts
        self._election = MemoryElection()
        self._members: list[Member] = []

    def member(self, name: str, *, journal: Journal | None = None, **settings: Any) -> Member:
        defaults = {
            "root": self._root,
            "guard_timeout": timedelta(seconds=1),
            "requeue_backoff_min": timedelta(milliseconds=20),
            "requeue_backoff_max": timedelta(milliseconds=200),
            "step_down_margin": timedelta(milliseconds=400),
        }
        parts: dict[str, Any] = {"journal": journal}
        if self.kind == "zookeeper":
            session = ZooKeeperSession(
                ZooKeeperConfig(hosts=self._hosts, session_timeout=timedelta(seconds=6))
            )
            session.start(LONG)
            parts["session"] = session
        elif self.kind == "memory":
            parts["election"] = self._election
        member = Member(self.kind, name, parts, defaults | settings)
        self._members.append(member)
        return member

    def write(self, member: Member, token: FencingToken) -> None:
        """Write a node with a token."""
        if member.session is not None:
            path = f"{self._root}/state-{uuid.uuid4().hex}"
            fenced_transaction(member.session, token, lambda t: t.create(path, b""))
        else:
            self._election.check(token)

    def end(self) -> None:
        for member in self._members:
            member.elector.close(LONG)
            if member.session is not None:
                member.session.close(LONG)
