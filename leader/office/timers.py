"""How long each timer of an office runs."""

from __future__ import annotations

from datetime import timedelta

from leader.backoff import Uniform, jittered
from leader.clock import Clock
from leader.config import ElectionConfig
from leader.office.consensus import Consensus
from leader.office.effects import Timer

_RETRY_FIRST = timedelta(milliseconds=100)


class Timers:
    """See the module."""

    def __init__(self, config: ElectionConfig, consensus: Consensus, clock: Clock, uniform: Uniform) -> None:
        self._config, self._consensus, self._clock, self._uniform = config, consensus, clock, uniform

    def due_at(self, timer: Timer, count: int) -> timedelta:
        """When `timer` runs out, if it is set now; later and random for a higher `count`."""
        return self._clock() + self._delay(timer, count)

    def _delay(self, timer: Timer, count: int) -> timedelta:
        config = self._config
        match timer:
            case Timer.GUARD:
                return config.guard_timeout
            case Timer.DRAIN:
                return config.handover_timeout
            case Timer.SETTLED:
                return config.requeue_backoff_max
            case Timer.RETRY:
                return jittered(_RETRY_FIRST, config.retry_max, count, self._uniform)
            case Timer.BACK_OFF:
                pause = jittered(config.requeue_backoff_min, config.requeue_backoff_max, count, self._uniform)
                return min(pause, self._consensus.time_until_forced(pause))
