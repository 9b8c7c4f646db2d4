"""What operators want: the content of `control`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import NamedTuple

from leader.protocol.record import decode, encode, field


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator wants no change of leader.

    Args:
        leader_id: Who led then and may go on, or take the lead again.
        reason: Why, for people.
    """

    leader_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Switchover:
    """An operator wants a named participant to lead.

    Args:
        to: Its id; empty for whoever is next.
        epoch: The epoch that shall end.
        reason: Why, for people.
    """

    to: str
    epoch: int
    reason: str

    def in_words(self) -> str:
        """What the electable is told as the reason; `asked_to_step_down` reads it."""
        return f"switchover to {self.to}: {self.reason}" if self.to else f"abdication: {self.reason}"


class StepDownWish(NamedTuple):
    """What an operator asked a leader for, through the control node."""

    to: str
    """Id of a participant; empty: whoever is next."""
    reason: str


_IN_WORDS = re.compile(r"(?:switchover to (?P<to>.+?)|abdication): (?P<reason>.*)", re.DOTALL)


def asked_to_step_down(reason: str) -> StepDownWish | None:
    """The wish behind the end of a leadership, by the reason that `Electable.revoked` was told."""
    found = _IN_WORDS.fullmatch(reason)
    return None if found is None else StepDownWish(found["to"] or "", found["reason"])


@dataclass(frozen=True, slots=True)
class Control:
    """What operators want."""

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
    """Read the control node. RecordError names `path` if it is not ours."""
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
