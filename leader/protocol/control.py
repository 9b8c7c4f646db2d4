"""The node `control`: what operators ask for."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import NamedTuple

from leader.protocol.record import decode, encode, field


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator forbids a change of leader.

    Args:
        leader_id: The leader at that time. During the pause, only this participant may lead.
    """

    leader_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Switchover:
    """An operator asks the leader to hand over.

    Args:
        to: Id of the participant that takes the lead; empty: the next in line.
        epoch: The epoch that must end.
    """

    to: str
    epoch: int
    reason: str

    def in_words(self) -> str:
        """Return the reason that `Electable.revoked` receives; `asked_to_step_down` parses it."""
        return f"switchover to {self.to}: {self.reason}" if self.to else f"abdication: {self.reason}"


class StepDownWish(NamedTuple):
    """A hand-over that an operator asked for through the control node."""

    to: str
    """Id of a participant; empty: the next in line."""
    reason: str


_IN_WORDS = re.compile(r"(?:switchover to (?P<to>.+?)|abdication): (?P<reason>.*)", re.DOTALL)


def asked_to_step_down(reason: str) -> StepDownWish | None:
    """Parse the reason that `Electable.revoked` received. None if no operator asked for a hand-over."""
    match = _IN_WORDS.fullmatch(reason)
    return None if match is None else StepDownWish(match["to"] or "", match["reason"])


@dataclass(frozen=True, slots=True)
class Control:
    """What operators ask for."""

    pause: Pause | None = None
    switchover: Switchover | None = None


def encode_control(control: Control) -> bytes:
    """Content of the control node."""
    return encode(
        {
            "pause": None if control.pause is None else asdict(control.pause),
            "switchover": None if control.switchover is None else asdict(control.switchover),
        }
    )


def decode_control(data: bytes, path: str) -> Control:
    """Read the control node. RecordError names `path` if the content is invalid."""
    fields = decode(data, path)
    pause, switchover = fields.get("pause"), fields.get("switchover")
    return Control(
        pause=Pause(field(pause, "leader_id", str, path), field(pause, "reason", str, path))
        if isinstance(pause, dict)
        else None,
        switchover=Switchover(
            field(switchover, "to", str, path),
            field(switchover, "epoch", int, path),
            field(switchover, "reason", str, path),
        )
        if isinstance(switchover, dict)
        else None,
    )
