"""What a participant needs from outside, above its latch."""

from __future__ import annotations

from typing import Protocol

from leader.protocol.terms import Leadership


class CallbackPort(Protocol):
    """Calls guard and electable somewhere else, one call at a time, in the order asked for. Never blocks.

    What comes of a call is handed to the core as an event.
    """

    def ask(self, epoch: int) -> None:
        """Ask the guard, unless a newer question is asked before its turn comes. -> later GuardSaid."""
        ...

    def elected(self, leadership: Leadership) -> None:
        """Tell the electable. -> AbdicationAsked, if it raises."""
        ...

    def revoked(self, leadership: Leadership, reason: str) -> None:
        """Tell the electable. -> Drained."""
        ...
