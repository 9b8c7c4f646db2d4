"""Terms: the content of `epoch` and of `leader`."""

from __future__ import annotations

from dataclasses import dataclass

from leader.fencing import FencingToken
from leader.protocol.encoding import decode, encode, field
from leader.protocol.participant import Participant, participant_fields, read_participant


@dataclass(frozen=True, slots=True)
class Leadership:
    """One term: lock held, epoch raised, guard passed. Never reused, never extended."""

    epoch: int
    token: FencingToken
    participant: Participant


@dataclass(frozen=True, slots=True)
class LeaderInfo:
    """The confirmed leader, as it published itself."""

    participant: Participant
    epoch: int
    session_id: int


def encode_epoch(epoch: int, latch: str = "") -> bytes:
    """Content of the epoch node: the number, and the name of the latch node it was raised for."""
    return encode({"epoch": epoch, "latch": latch})


def decode_epoch(data: bytes, path: str) -> tuple[int, str]:
    """Read the epoch node; a latch that is not named is "". RecordError names `path` if it is not ours."""
    fields = decode(data, path)
    latch = fields.get("latch", "")
    return field(fields, "epoch", int, path), latch if isinstance(latch, str) else ""


def encode_leader(info: LeaderInfo) -> bytes:
    """Content of the leader node."""
    fields = participant_fields(info.participant)
    return encode(fields | {"epoch": info.epoch, "session_id": info.session_id})


def decode_leader(data: bytes, path: str) -> LeaderInfo:
    """Read the leader node. RecordError names `path` if it is not ours."""
    fields = decode(data, path)
    return LeaderInfo(
        participant=read_participant(fields, path),
        epoch=field(fields, "epoch", int, path),
        session_id=field(fields, "session_id", int, path),
    )
