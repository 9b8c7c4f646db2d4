"""Records of a fault: its random choices, and its target and times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from tests.leader.election.history import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """All random choices of a fault, drawn before the leader is known.

    Args:
        kind: A key of `KINDS`.
        at_leader: Whether it hits the participant that leads then; otherwise `index` names the victim.
        index: Number of the victim among the other participants, or of the server.
        hold: How long it lasts.
        op: For a trap: the request that it waits for.
        nth: For a trap: which of these requests.
        coin: Selects one of two forms of a fault.
        spared: Names of participants that another fault has already hit.
    """

    kind: str
    at_leader: bool
    index: int
    hold: timedelta
    op: int | None
    nth: int
    coin: bool
    spared: frozenset[str] = frozenset()


@dataclass(slots=True)
class Struck:
    """An injected fault, for the checker and for the report. Times are of CLOCK_BOOTTIME.

    Args:
        kind: Kind of the fault.
        target: Participant, server or node.
        by_ns: It was active at this time.
        mend: Ends it.
        mended_ns: It had ended at this time.
        moments: Events that the checker must know.
        done: Whether it happened; a trap may have waited for a request that never came.
    """

    kind: str
    target: str
    by_ns: int
    mend: Callable[[], None]
    mended_ns: int = 0
    moments: tuple[Moment, ...] = ()
    done: bool = True
