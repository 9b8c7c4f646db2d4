"""Terms: the content of `epoch` and of `leader`."""

from __future__ import annotations

from dataclasses import dataclass

from leader.protocol.encoding import decode, encode, field
from leader.protocol.fencing import FencingToken
from leader.protocol.participant import Participant, participant_fields, read_participant


@dataclass(frozen=True, slots=True)
class Leadership:
    """One term: lock held, epoch raised, guard passed. Never reused, never extended."""

    epoch: int
    token: FencingToken
    participant: Participant
    schema: int = 1
    """Of what this election protects; see `schema_raised`."""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The content of the epoch node.

    Args:
        epoch: The number of the newest term.
        latch: Name of the latch node it was raised for; "" if it is not named.
        schema: Of what this election protects. Who does not know it cannot take the lead.
    """

    epoch: int
    latch: str = ""
    schema: int = 1


@dataclass(frozen=True, slots=True)
class LeaderInfo:
    """The confirmed leader, as it published itself."""

    participant: Participant
    epoch: int
    session_id: int


def encode_epoch(record: EpochRecord) -> bytes:
    """Content of the epoch node.

    Its schema stands where all records have theirs, so that a release whose records are all of schema 1
    refuses to raise the epoch under a higher one.
    """
    return encode({"epoch": record.epoch, "latch": record.latch, "schema": record.schema})


def decode_epoch(data: bytes, path: str) -> EpochRecord:
    """Read the epoch node, of any schema. RecordError names `path` if it is not ours."""
    fields = decode(data, path, any_schema=True)
    latch = fields.get("latch", "")
    return EpochRecord(
        epoch=field(fields, "epoch", int, path),
        latch=latch if isinstance(latch, str) else "",
        schema=field(fields, "schema", int, path),
    )


def schema_raised(token: FencingToken, schema: int) -> bytes:
    """What a leader writes into `token.path` to raise the schema of what the election protects.

    It needs a fenced transaction. That is the term's last write: the version of the node, which fences all
    others, has changed. Resign; the next term, of whoever knows the schema, begins under it.
    """
    return encode_epoch(EpochRecord(token.epoch, schema=schema))


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
