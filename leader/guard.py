"""The question put to a candidate that holds the lock: may you lead?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Verdict:
    """The guard's answer.

    Args:
        ready: Whether the candidate may lead.
        reasons: Why not, or why only degraded, for people.
        degraded: With `ready`: it may lead, but only while no other participant is ready.
    """

    ready: bool
    reasons: tuple[str, ...] = ()
    degraded: bool = False

    def why(self) -> str:
        """The reasons of a no, in one line."""
        return "; ".join(self.reasons) or "the guard said no"


class Guard(Protocol):
    """Asked after the epoch is raised, before anybody is told. No, an exception and silence all mean no."""

    def __call__(self) -> Verdict:
        """Judge. Called on the thread `leader-callbacks`; may take as long as `guard_timeout`."""
        ...
