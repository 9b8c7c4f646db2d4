"""What operators want: the content of `control`."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from leader.protocol.encoding import decode, encode, field


@dataclass(frozen=True, slots=True)
class Pause:
    """An operator wants no change of leader.

    Args:
        leader_id: Who led then and may go on, or take office again.
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
