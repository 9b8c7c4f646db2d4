"""What a participant needs from outside, above its latch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leader.guard import Verdict
from leader.protocol.terms import Leadership


class GuardPort(Protocol):
    """Asks the guard somewhere else."""

    def ask(self, report: Callable[[Verdict], None]) -> bool:
        """Ask; the verdict arrives at `report`, or never. False while an earlier question is not answered."""
        ...


class NotifierPort(Protocol):
    """Tells the electable somewhere else, in order."""

    def elected(self, leadership: Leadership) -> None:
        """Deliver `elected`, later."""
        ...

    def revoked(self, leadership: Leadership, reason: str, done: Callable[[], None]) -> None:
        """Deliver `revoked`, later, and then call `done`."""
        ...
