"""The question put to a candidate that holds the lock: may you lead?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import structlog

from leader.errors import in_words

_log = structlog.get_logger(__name__)


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


def checked(guard: Guard) -> Verdict:
    """Ask; whatever is raised, and whatever is no verdict, means no."""
    try:
        verdict: object = guard()
        if not isinstance(verdict, Verdict):
            return Verdict(False, (f"the guard returned {verdict!r}, wanted a Verdict",))
        # Its fields may be anything; only True is yes.
        return Verdict(verdict.ready is True, tuple(map(str, verdict.reasons)), verdict.degraded is True)
    except BaseException as exc:  # noqa: BLE001 - foreign code: whatever it raises means no, a cancellation too
        _log.warning("guard_raised", exc_info=True)
        return Verdict(False, (f"the guard raised {in_words(exc)}",))
