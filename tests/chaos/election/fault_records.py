"""A fault as it was drawn, and as it was injected: target and times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from tests.election.history import Moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """All random choices of a fault, drawn before the leader is known.

    Args:
        kind: A key of `KINDS`.
        at_leader: Whether it strikes who leads then; else `index` says whom.
        index: Number of the victim among the others, or of the server.
        hold: How long it lasts.
        op: Of a trap.
        nth: Of a trap.
        coin: For whatever has two forms.
        spared: Names of participants that another fault has struck already.
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
    """A fault that was played: for the checker and for the report. Times by CLOCK_BOOTTIME.

    Args:
        kind: Of fault.
        target: Participant, server or node.
        by_ns: It was in force by then.
        mend: What ends it.
        mended_ns: It was over by then.
        moments: What the judge must know of it.
        done: It did happen; a trap may have waited for a request that never came.
    """

    kind: str
    target: str
    by_ns: int
    mend: Callable[[], None]
    mended_ns: int = 0
    moments: tuple[Moment, ...] = ()
    done: bool = True
