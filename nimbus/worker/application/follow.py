"""Decides about an attempt that was submitted to a cluster, from what is known of it. Pure.

The cluster's word decides only that a driver is gone, and not while the driver's own bootstrap is heard.
"""

from __future__ import annotations

from dataclasses import dataclass

from nimbus.domain.slots import Slots
from nimbus.worker.application.manager import DriverReport, DriverState

HEARD_S = 12.0
"""A bootstrap that was heard so lately lives, whatever the cluster says."""
FAREWELL_S = 20.0
"""What a driver gets to end by itself after its END."""
STUBBORN_S = 60.0
"""For so long a cluster may leave a driver that was killed; then a stopped attempt is closed without it."""
GONE_S = 6.0
"""For so long a cluster must say that a driver is gone: its END may be on the way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a submitted attempt at one moment."""

    slots: Slots
    report: DriverReport | None
    """None: the cluster was not asked yet."""
    gone_for_s: float
    """Between the first and the last of its answers, without another one between, that the driver is gone."""
    heard_for_s: float
    """How long ago the bootstrap was heard; infinite: never."""
    ended_for_s: float
    """How long END has been seen."""
    stopping_for_s: float | None
    """How long a stop has been requested; None: it has not."""
    waiting_for_s: float
    """How long it has been submitted without a claim."""


@dataclass(frozen=True, slots=True)
class GoOn:
    """Nothing to do now."""


@dataclass(frozen=True, slots=True)
class Forget:
    """END is there, and the driver is gone."""


@dataclass(frozen=True, slots=True)
class Kill:
    """End the driver, and look again."""

    why: str


@dataclass(frozen=True, slots=True)
class EndAs:
    """Write END."""

    why: str
    stopped: bool = False
    """On request; or else it is lost, or was never started."""


Action = GoOn | Forget | Kill | EndAs


def follow(seen: Seen, *, stop_grace_s: float, queue_timeout_s: float) -> Action:
    """Decide about an attempt that was submitted.

    Args:
        seen: What is known.
        stop_grace_s: How long its bootstrap has to obey a stop.
        queue_timeout_s: How long it may wait in the cluster for its driver.
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
    """Unclaimed, a leader closes it; claimed, its bootstrap hears of it, or else the cluster."""
    if stopping_for_s <= stop_grace_s:
        return GoOn()
    if stopping_for_s > stop_grace_s + STUBBORN_S and seen.heard_for_s >= HEARD_S:
        # What it writes is of no use any more, and no attempt follows this one.
        words = "nothing" if seen.report is None else seen.report.words
        why = f"stopped on request; its driver is not heard and may live: the cluster says {words}"
        return EndAs(why, stopped=True)
    return Kill("it did not obey a stop")


def _gone(seen: Seen, words: str) -> str:
    if seen.slots.claim is None:
        return f"its driver ended before it could claim the attempt: the cluster says {words}"
    return f"its driver is gone from the cluster, which says {words}"
