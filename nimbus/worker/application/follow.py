"""Decides about an attempt that was submitted to a cluster, from its observed state. Pure.

The cluster's report decides only that a driver is gone, and only if the driver's bootstrap sends no beats.
"""

from __future__ import annotations

from dataclasses import dataclass

from nimbus.domain.slots import Slots
from nimbus.worker.application.manager import DriverReport, DriverState

HEARD_S = 12.0
"""A bootstrap whose last beat is newer than this is alive, whatever the cluster reports."""
FAREWELL_S = 20.0
"""How long a driver may take to end after its END."""
STUBBORN_S = 60.0
"""How long a cluster may take to end a killed driver; then a stopped attempt is closed anyway."""
GONE_S = 6.0
"""How long a cluster must report that a driver is gone, because its END may be on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The observed state of a submitted attempt at one moment."""

    slots: Slots
    report: DriverReport | None
    """None before the first report."""
    gone_for_s: float
    """Time between the first and the last of consecutive reports that the driver is gone."""
    heard_for_s: float
    """Time since the bootstrap's last beat; infinite: never."""
    ended_for_s: float
    """Time since END was first seen."""
    stopping_for_s: float | None
    """Time since the request to stop; None: there is none."""
    waiting_for_s: float
    """Time since the submission, without a claim."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Do nothing now."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Stop following: END is filled, and the driver is gone."""


@dataclass(frozen=True, slots=True)
class Kill:
    """End the driver, and check again."""

    why: str


@dataclass(frozen=True, slots=True)
class EndAs:
    """Write END."""

    why: str
    stopped: bool = False
    """True if it ended on request; else it is lost, or was never started."""


Action = GoOn | Forget | Kill | EndAs


def follow(seen: Seen, *, stop_grace_s: float, queue_timeout_s: float) -> Action:
    """Decide about an attempt that was submitted.

    Args:
        seen: The observed state.
        stop_grace_s: How long its bootstrap may take to stop.
        queue_timeout_s: How long it may wait in the cluster for its driver's start.
    """
    is_gone = seen.report is not None and seen.report.state is DriverState.GONE
    if seen.slots.end is not None:
        if is_gone:
            return Forget()
        return Kill("its attempt has ended") if seen.ended_for_s > FAREWELL_S else GoOn()
    words = "" if seen.report is None else seen.report.words
    if is_gone and seen.gone_for_s >= GONE_S and seen.heard_for_s >= HEARD_S:
        return EndAs(_gone(seen, words), stopped=seen.stopping_for_s is not None)
    if is_gone:
        return GoOn()
    if seen.stopping_for_s is not None:
        return _stopping(seen, seen.stopping_for_s, stop_grace_s)
    if seen.slots.claim is None and seen.waiting_for_s > queue_timeout_s:
        return EndAs(f"its driver did not start within {queue_timeout_s:.0f} s: the cluster says {words}")
    return GoOn()


def _stopping(seen: Seen, stopping_for_s: float, stop_grace_s: float) -> Action:
    """Without a claim, a leader closes it. With a claim, its bootstrap ends it, or else the cluster."""
    if stopping_for_s <= stop_grace_s:
        return GoOn()
    if stopping_for_s > stop_grace_s + STUBBORN_S and seen.heard_for_s >= HEARD_S:
        # Its output is not used any more, and no attempt follows this one.
        words = "nothing" if seen.report is None else seen.report.words
        why = f"stopped on request; its driver is not heard and may live: the cluster says {words}"
        return EndAs(why, stopped=True)
    return Kill("it did not obey a stop")


def _gone(seen: Seen, words: str) -> str:
    if seen.slots.claim is None:
        return f"its driver ended before it could claim the attempt: the cluster says {words}"
    return f"its driver is gone from the cluster, which says {words}"
