"""Random small faults. In the calm phase nothing is lost, refused or interrupted."""

from __future__ import annotations

from random import Random

from nimbus.attempt.model import NEVER_S
from nimbus.domain.pipelines.pipeline import FailureClass


class Dice:
    """See the module."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.storm = self.gusts = True
        """Whether faults happen; and those of hosts, workers and attempts, which last longer."""

    def _falls(self, chance: float) -> bool:
        return self.storm and self._rng.random() < chance

    def _gust_falls(self, chance: float) -> bool:
        return self.gusts and self._rng.random() < chance

    def request_is_lost(self) -> bool:
        """True if a request of a leader never arrives."""
        return self._falls(0.02)

    def reply_is_lost(self) -> bool:
        """True if a commit was executed but its reply is lost."""
        return self._falls(0.05)

    def answer_is_lost(self) -> bool:
        """True if a request of an attempt was executed but its answer is lost."""
        return self._gust_falls(0.05)

    def target_refuses(self) -> bool:
        """True if a target refuses an alert."""
        return self._falls(0.1)

    def is_interrupted(self, *, racing: bool) -> bool:
        """True if others act before a request arrives. `racing`: it fills a slot that others may fill."""
        return self._falls(0.4 if racing else 0.06)

    def order_is_refused(self, *, full: bool) -> bool:
        """True if a worker cannot start an attempt. `full`: its disk is."""
        return self._gust_falls(0.5 if full else 0.05)

    def failure(self) -> FailureClass:
        """Why a driver failed."""
        return self._rng.choice(tuple(FailureClass))

    # -- attempts

    def stretch(self) -> int:
        """How much of what is due an attempt does, before others act."""
        return self._rng.choice((1, 2, 4, 16, 16)) if self.gusts else 30

    def dies_now(self) -> bool:
        """True if a runner, executor or worker is killed before its next instruction."""
        return self._gust_falls(0.015)

    def status(self, *, told: bool) -> int | None:
        """The exit status of a driver that ends now; None: it continues. `told`: it was told to end."""
        if not self.gusts:
            return 1 if told else self._rng.choice((0, None))
        fate = self._rng.random()
        if told:
            return 0 if fate < 0.15 else (1 if fate < 0.3 else None)
        if fate < 0.3:
            return 0
        return self._rng.choice((1, 1, 1, -9)) if fate < 0.5 else None

    def lingers(self) -> bool:
        """True if a driver has not ended when its code has."""
        return self._gust_falls(0.2)

    def driver_begins(self) -> bool:
        """True if a driver in the cluster that waits is started."""
        return self._rng.random() < 0.4

    def remains(self) -> bool:
        """True if descendants of a driver outlive it."""
        return self._rng.random() < 0.3

    def gets_stuck(self) -> bool:
        """True if a driver does not end by SIGKILL."""
        return self._gust_falls(0.2)

    def timeout_s(self) -> float:
        """The timeout of an attempt."""
        return 8.0 if self._gust_falls(0.3) else NEVER_S

    def progress(self) -> str:
        """The task's progress."""
        return '{"a": 1}' if self._gust_falls(0.1) else "{}"

    def commit_fault(self, *, full: bool) -> str:
        """Why an output cannot be stored."""
        return "no room" if full or self._gust_falls(0.02) else ""

    def log_is_stored(self) -> bool:
        """True if the log of an attempt is stored at its end."""
        return not self._gust_falls(0.05)
