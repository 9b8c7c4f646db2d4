"""The frame of every page: the leader, the answering scheduler, and the other schedulers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from threading import Lock

from nimbus.api.services import ApiServices, LeaderView


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The frame of one page."""

    answered_by: str
    version: str
    leader: LeaderView | None
    unavailable_since: datetime | None
    """Since when ZooKeeper does not answer; None: it answers."""
    others: Sequence[tuple[str, str]]
    """Ids and base URLs of the other schedulers."""


class Frames:
    """Builds frames. Any thread."""

    def __init__(self, services: ApiServices) -> None:
        self._services = services
        self._lock = Lock()
        self._others: tuple[tuple[str, str], ...] = ()
        self._unavailable_since: datetime | None = None

    def now(self) -> Frame:
        """The frame of a page at this moment. Raises StoreUnavailableError."""
        me, leader = self._services.health.info(), self._services.health.leader()
        others = tuple(
            (one.id, one.address.rstrip("/"))
            for one in sorted(self._services.reader.schedulers(), key=lambda one: one.id)
            if one.id != me.id and one.address.startswith(("http://", "https://"))
        )
        with self._lock:
            self._others, self._unavailable_since = others, None
        return Frame(
            answered_by=me.id, version=me.version, leader=leader, unavailable_since=None, others=others
        )

    def unavailable(self) -> Frame:
        """The frame of the page about a ZooKeeper outage, from data that was read before."""
        me, now = self._services.health.info(), self._services.clock.now()
        with self._lock:
            self._unavailable_since = since = self._unavailable_since or now
            others = self._others
        return Frame(
            answered_by=me.id, version=me.version, leader=None, unavailable_since=since, others=others
        )
