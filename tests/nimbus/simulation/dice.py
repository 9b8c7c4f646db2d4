"""Random small faults. In the calm phase nothing is lost, refused or interrupted."""

from __future__ import annotations

from random import Random

from nimbus.domain.failures import FailureClass
from nimbus.domain.task_run import Outcome


class Dice:
    """See the module."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.storm = True

    def _falls(self, chance: float) -> bool:
        return self.storm and self._rng.random() < chance

    def request_is_lost(self) -> bool:
        """True if a request of a leader never arrives."""
        return self._falls(0.02)

    def reply_is_lost(self) -> bool:
        """True if a commit was executed but its reply is lost."""
        return self._falls(0.05)

    def target_refuses(self) -> bool:
        """True if a target refuses an alert."""
        return self._falls(0.1)

    def is_interrupted(self, *, racing: bool) -> bool:
        """True if others act before a request arrives. `racing`: it fills a slot that others may fill."""
        return self._falls(0.4 if racing else 0.06)

    def order_is_refused(self) -> bool:
        """True if a worker cannot start an attempt."""
        return self._falls(0.08)

    def failure(self) -> FailureClass:
        """Why a driver failed."""
        return self._rng.choice(tuple(FailureClass))

    def outcome(self, *, stop_requested: bool) -> Outcome | None:
        """How a driver ends now; None: it continues."""
        if not self.storm:
            return Outcome.STOPPED if stop_requested else Outcome.SUCCEEDED
        fate = self._rng.random()
        if stop_requested and fate < 0.5:
            return Outcome.STOPPED
        if fate < 0.3:
            return Outcome.SUCCEEDED
        if fate < 0.55:
            return Outcome.FAILED
        return Outcome.TIMED_OUT if fate < 0.6 else None
