"""Whoever wants to lead as one component among several of an election."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from leader.errors import LeaderError


class LeaderContender(Protocol):
    """Called on the thread `leader-service`, one call at a time, with no lock of ours held.

    The thread is shared by all components of a service: whoever blocks it makes the others wait. A contender
    that starts something long does so on a thread of its own, and asks `has_leadership` where it matters.
    """

    @property
    def description(self) -> str:
        """Who this is, for logs."""
        ...

    def grant(self, session: UUID) -> None:
        """Lead, under this session id, which is never used again; then confirm it with an address.

        Raising means that you cannot: the whole election abdicates.
        """
        ...

    def revoke(self) -> None:
        """Stop what the last grant began. It is over already; return soon."""
        ...

    def handle_error(self, error: LeaderError) -> None:
        """Your leader information could not be written. It is tried again; told once for each such row."""
        ...
