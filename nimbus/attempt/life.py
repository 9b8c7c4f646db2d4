"""One attempt: its state machine, and its upkeep while it has the claim. Pure.

Upkeep: when the board is read, heartbeats are sent, and checkpoints are stored. An outage of the board alone
changes nothing: what could not be sent is sent after the next answer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import List, NamedTuple, Optional, Tuple

from nimbus.attempt import machine
from nimbus.attempt import model as m
from nimbus.attempt.model import NEVER_S, Event, Instruction, State, Terms


class Pace(NamedTuple):
    """Durations in seconds."""

    first_board_read_s: float = 0.0
    """From the claim until the first read. Short attempts never read."""
    board_read_s: float = 5.0
    """Between reads without a change: a lost watch costs seconds, not the attempt."""
    notes_read_s: float = 1.0
    """Between two looks at the task's notes; the shortest time between two checkpoints."""
    heartbeat_s: float = 2.0
    """The shortest time between two heartbeats with new progress."""


@dataclass(frozen=True)
class Upkeep:
    """Times of the next steps, and what was sent last."""

    board_read_at_s: float
    notes_read_at_s: float
    heartbeat_at_s: float
    is_watched: bool = False
    is_reading_board: bool = False
    progress: str = "{}"
    checkpoint: Optional[str] = None

    @property
    def due_s(self) -> float:
        """When the next `Tick` is due."""
        return min(NEVER_S if self.is_reading_board else self.board_read_at_s, self.notes_read_at_s)


def keep_up(upkeep: Upkeep, event: Event, pace: Pace, now_s: float) -> Tuple[Upkeep, Tuple[Instruction, ...]]:
    """Returns the next upkeep and the instructions that `event` causes."""
    if isinstance(event, m.Tick):
        return _ticked(upkeep, pace, now_s)
    if isinstance(event, m.NotesRead):
        return _notes_read(upkeep, event, pace, now_s)
    if isinstance(event, m.BoardRead):
        wait_s = pace.board_read_s if upkeep.is_watched else 0.0  # it changed while it was read
        looked = replace(upkeep, is_reading_board=False, board_read_at_s=now_s + wait_s)
        is_seen = (
            event.has_heartbeat or event.holder is not m.ClaimHolder.OURS
        )  # its place may be a later run's
        return looked, () if is_seen else (m.SendHeartbeat(upkeep.progress),)
    if isinstance(event, m.BoardChanged):
        if upkeep.is_reading_board:  # its answer may be older than the change
            return replace(upkeep, is_watched=False), ()
        return replace(upkeep, is_watched=True, is_reading_board=True), (m.ReadBoard(watch=True),)
    if isinstance(event, m.BoardSilent):  # the watch may be lost with the session
        return replace(upkeep, is_watched=False, is_reading_board=False, board_read_at_s=now_s), ()
    return upkeep, ()


def _ticked(upkeep: Upkeep, pace: Pace, now_s: float) -> Tuple[Upkeep, Tuple[Instruction, ...]]:
    instructions: List[Instruction] = []
    if now_s >= upkeep.board_read_at_s and not upkeep.is_reading_board:
        # A watch stays armed: more of them would pile up.
        instructions.append(m.ReadBoard(watch=not upkeep.is_watched))
        upkeep = replace(upkeep, is_reading_board=True, is_watched=True)
    if now_s >= upkeep.notes_read_at_s:
        instructions.append(m.ReadNotes())
        upkeep = replace(upkeep, notes_read_at_s=now_s + pace.notes_read_s)
    return upkeep, tuple(instructions)


def _notes_read(
    upkeep: Upkeep, notes: m.NotesRead, pace: Pace, now_s: float
) -> Tuple[Upkeep, Tuple[Instruction, ...]]:
    instructions: List[Instruction] = []
    if notes.progress != upkeep.progress and now_s >= upkeep.heartbeat_at_s:
        instructions.append(m.SendHeartbeat(notes.progress))
        upkeep = replace(upkeep, progress=notes.progress, heartbeat_at_s=now_s + pace.heartbeat_s)
    if notes.checkpoint is not None and notes.checkpoint != upkeep.checkpoint:
        instructions.append(m.KeepCheckpoint(notes.checkpoint))
        upkeep = replace(upkeep, checkpoint=notes.checkpoint)
    return upkeep, tuple(instructions)


_KEPT_UP = (m.Checking, m.Preparing, m.Running, m.Clearing, m.Committing, m.Recording, m.Delivering)
"""States with a claim that the leader must not take for lost."""


class Life:
    """Takes events, and returns the instructions that the shell must perform, in this order. One thread."""

    def __init__(self, terms: Terms, pace: Optional[Pace] = Pace()) -> None:  # noqa: B008 - immutable
        """`pace`: None: the shell sends heartbeats by itself, and reports their answers as `BoardRead`."""
        self.state: State = m.AwaitingClaim()
        self._terms, self._pace = terms, pace
        self._upkeep: Optional[Upkeep] = None
        self._is_needed = True

    def begin(self) -> Tuple[Instruction, ...]:
        """The first instructions."""
        return (m.PutClaim(),)

    def deliver(self) -> Tuple[Instruction, ...]:
        """The first instructions if the exit record is on disk: an earlier process has left it."""
        self.state = m.Delivering()
        return (m.PutEnd(),)

    @property
    def due_s(self) -> float:
        """When a `Tick` must be reported."""
        due_s = machine.due_s(self.state)
        return due_s if self._upkeep is None else min(due_s, self._upkeep.due_s)

    def apply(self, event: Event, now_s: float) -> Tuple[Instruction, ...]:
        """Apply an event. `now_s`: on a clock that does not step."""
        self.state, instructions = machine.step(self.state, event, self._terms, now_s)
        if isinstance(event, m.AttemptGone) or (isinstance(event, m.BoardRead) and event.is_useless):
            self._is_needed = False  # the board may have it for a later run
        if self._pace is None or not (self._is_needed and isinstance(self.state, _KEPT_UP)):
            self._upkeep = None
            return instructions
        if self._upkeep is None:
            pace = self._pace
            self._upkeep = Upkeep(
                now_s + pace.first_board_read_s, now_s + pace.notes_read_s, now_s + pace.heartbeat_s
            )
        self._upkeep, more = keep_up(self._upkeep, event, self._pace, now_s)
        return (*instructions, *more)
