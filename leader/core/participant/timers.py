"""How long each timer of a participant runs."""

from __future__ import annotations

from datetime import timedelta

from leader.clock import RETRY_FIRST, Uniform, jittered
from leader.config import ElectionConfig
from leader.core.participant.eligibility import DeclineTracker
from leader.core.participant.model import Timer

PUBLISH_DELAY = timedelta(milliseconds=1)
"""Delay of the first publish: meanwhile the driver leaves the GIL to the callback thread's `elected`."""


def delay_of(
    timer: Timer, count: int, config: ElectionConfig, uniform: Uniform, declines: DeclineTracker
) -> timedelta:
    """Returns how long `timer` runs. RETRY and BACK_OFF are random and grow with `count`."""
    match timer:
        case Timer.GUARD:
            return config.guard_timeout
        case Timer.PUBLISH:
            return PUBLISH_DELAY
        case Timer.SETTLED:
            return config.requeue_backoff_max
        case Timer.DRAIN:
            return config.handover_timeout
        case Timer.RETRY:
            return jittered(RETRY_FIRST, config.retry_max, count, uniform)
        case Timer.BACK_OFF:
            pause = jittered(config.requeue_backoff_min, config.requeue_backoff_max, count, uniform)
            return min(pause, declines.time_until_forced(pause))
