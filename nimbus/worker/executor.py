"""The port through which a worker runs attempts: one executor for each kind of holder that a claim can name.

It has no `stop`: the process that runs an attempt reads stop requests from the board itself, so a stop works
without the worker (ADR 29).
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from nimbus.domain.slots import Claim, End
from nimbus.domain.workers import Assignment
from nimbus.worker.settings import RunnerPlan


class Sight(Enum):
    """What this worker knows about an attempt's holder."""

    ALIVE = "alive"
    """It will end the attempt by itself."""
    GONE = "gone"
    ELSEWHERE = "elsewhere"
    """This worker cannot see it."""


class Executor(Protocol):
    """Runs attempts, and knows how they ended. Worker thread; every call names an attempt.

    Every call may be repeated, also by another worker after the death of the first one: CLAIM is created
    before user code runs, so a second launch of an attempt ends there.
    """

    def sweep(self) -> None:
        """Take over attempts of an earlier worker: watch living ones, and settle dead ones."""
        ...

    def launch(self, order: Assignment, plan: RunnerPlan) -> None:
        """Start an attempt. An attempt that cannot be started here is refused.

        Raises:
            OSError, StoreUnavailableError: temporary failure; try again.
        """
        ...

    def probe(self, attempt: str, claim: Claim | None) -> Sight:
        """Check the holder that an attempt's claim names. None: the attempt is not claimed."""
        ...

    def reap(self, attempt: str, claim: Claim | None) -> End:
        """Kill the remaining processes of an attempt whose holder is dead.

        Returns:
            The content for END: the record that the holder left, or "lost".
        """
        ...

    def close(self) -> None:
        """Accept no more attempts; running ones continue."""
        ...
