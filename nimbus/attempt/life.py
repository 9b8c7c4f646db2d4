"""One attempt: its state machine, and its upkeep while it has the claim."""

from __future__ import annotations

from typing import Optional, Tuple

from nimbus.attempt import machine, upkeep
from nimbus.attempt import model as m
from nimbus.attempt.model import Event, Instruction, State, Terms
from nimbus.attempt.upkeep import Pace, Upkeep

_KEPT_UP = (m.Checking, m.Preparing, m.Running, m.Clearing, m.Committing, m.Recording, m.Delivering)
"""States with a claim that the leader must not take for lost."""


class Life:
    """Takes events, and returns the instructions that the shell must perform, in this order. One thread."""

    def __init__(self, terms: Terms, pace: Optional[Pace] = Pace()) -> None:  # noqa: B008 - immutable
        """`pace`: None: the shell sends heartbeats by itself, and reports their answers as `Looked`."""
        self.state: State = m.Claiming()
        self._terms, self._pace = terms, pace
        self._upkeep: Optional[Upkeep] = None
        self._is_needed = True

    def begin(self) -> Tuple[Instruction, ...]:
        """The first instructions."""
        return (m.Claim(),)

    def deliver(self) -> Tuple[Instruction, ...]:
        """The first instructions if the exit record is on disk: an earlier process has left it."""
        self.state = m.Delivering()
        return (m.PutEnd(),)

    @property
    def due_s(self) -> float:
        """When a `Tick` must be reported."""
        due_s = machine.due_s(self.state)
        return due_s if self._upkeep is None else min(due_s, self._upkeep.due_s)

    def hear(self, event: Event, now_s: float) -> Tuple[Instruction, ...]:
        """Apply an event.

        Args:
            event: What has happened.
            now_s: The time, on a clock that does not step.
        """
        self.state, instructions = machine.step(self.state, event, self._terms, now_s)
        if isinstance(event, m.Withdrawn) or (isinstance(event, m.Looked) and event.is_useless):
            self._is_needed = False  # the board may have it for a later run
        if self._pace is None or not (self._is_needed and isinstance(self.state, _KEPT_UP)):
            self._upkeep = None
            return instructions
        if self._upkeep is None:
            self._upkeep = upkeep.begun(self._pace, now_s)
        self._upkeep, more = upkeep.step(self._upkeep, event, self._pace, now_s)
        return (*instructions, *more)
