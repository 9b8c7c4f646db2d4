"""The port through which a worker runs attempts: one executor for each kind of holder that a claim can name.

A stop does not pass through it: the process that runs an attempt reads the request from the board itself, so
a stop works while the worker is away (ADR 29).
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from nimbus.domain.slots import Claim, End
from nimbus.domain.workers import Assignment
from nimbus.worker.settings import RunnerPlan


class Sight(Enum):
    """What can be said of an attempt's holder from here."""

    ALIVE = "alive"
    """It will end the attempt by itself."""
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    """Nothing can be seen of it from this worker."""


class Executor(Protocol):
    """Runs attempts, and knows what became of them. Worker thread; every call names an attempt.

    Every call may be repeated, also by another worker after the death of the first one: what runs an attempt
    creates CLAIM before user code, so a second launch of it ends there.
    """

    def sweep(self) -> None:
        """Pick up what an earlier worker left: watch what lives, and settle what died."""
        ...

    def launch(self, order: Assignment, plan: RunnerPlan) -> None:
        """Have an attempt run. One that cannot be started here is refused.

        Raises:
            OSError, StoreUnavailableError: not possible now; try again.
        """
        ...

    def probe(self, attempt: str, claim: Claim | None) -> Sight:
        """Look whether an attempt is held, by what the claim says; None: nothing has claimed it."""
        ...

    def reap(self, attempt: str, claim: Claim | None) -> End:
        """Kill what is left of an attempt whose holder is gone.

        Returns:
            What END must say: the record that the holder left, or that the attempt is lost.
        """
        ...

    def close(self) -> None:
        """Take no more attempts; those that run go on."""
        ...
