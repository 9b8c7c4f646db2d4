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
    """Asked after the epoch is raised, before the electable is told. No, an exception and silence mean no.

    With `ElectionConfig.forced_takeover_after`, a no or an exception of the best-ranked participant is
    overruled after every guard has declined for that long; silence never is. So a guard is no place for a
    condition of safety.
    """

    def __call__(self) -> Verdict:
        """Judge. Called on the thread `leader-callbacks`.

        The answer must come within `guard_timeout` of the question. The question may wait for the thread, for
        example behind a slow `revoked`, and that time counts.
        """
        ...
