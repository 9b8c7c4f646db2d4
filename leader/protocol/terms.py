"""Terms of leadership: the nodes `epoch`, `leader` and `components/<name>`; the token that fences writes."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from leader.errors import RecordError
from leader.protocol.participant import Participant, participant_fields, read_participant
from leader.protocol.record import decode, encode, field
from leader.protocol.requests import Check


@dataclass(frozen=True, slots=True)
class FencingToken:
    """What ZooKeeper checks in each write of a leader, so that it refuses the writes of a deposed leader.

    Args:
        version: Version of that node during the term. ZooKeeper compares it.
        epoch: Number of the epoch, for people, for logs and for fencing other stores.
        latch: Path of the latch node of this term, which must exist. Its name is unique, and it is never used
            with a second epoch node. So a token stays invalid even if ZooKeeper's data is wiped and the epoch
            node reaches the same version again.
    """

    path: str
    version: int
    epoch: int
    latch: str | None = None

    def checks(self) -> tuple[Check, ...]:
        """Return the first operations of a transaction that only this term may commit."""
        epoch = Check(self.path, self.version)
        return (epoch,) if self.latch is None else (epoch, Check(self.latch))


@dataclass(frozen=True, slots=True)
class Leadership:
    """One term: lock held, epoch raised, guard passed. Never reused, never extended."""

    epoch: int
    token: FencingToken
    participant: Participant
    schema: int = 1
    """Schema of the data that this election protects; see `schema_raised`."""


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The content of the epoch node.

    Args:
        epoch: Number of the newest term.
        latch: Name of the latch node for which the epoch was raised; "" if it is not named.
        schema: Schema of the protected data. A participant that does not know it cannot take the lead.
    """

    epoch: int
    latch: str = ""
    schema: int = 1


@dataclass(frozen=True, slots=True)
class LeaderInfo:
    """The confirmed leader, as published in the leader node."""

    participant: Participant
    epoch: int
    session_id: int


_RAISE_EPOCH = (
    'write {"epoch": N, "schema": 1} into it, with N above every epoch ever used, and the schema in use'
)
"""Remedy for a damaged epoch node. If it was deleted, epochs would begin again at 1."""


def encode_epoch(record: EpochRecord) -> bytes:
    """Return the content of the epoch node.

    The field `schema` is the one that all records have. So a release whose records all have schema 1 refuses
    to raise the epoch under a higher schema.
    """
    return encode({"epoch": record.epoch, "latch": record.latch, "schema": record.schema})


def decode_epoch(data: bytes, path: str) -> EpochRecord:
    """Read the epoch node, of any schema. RecordError names `path` if the content is invalid."""
    fields = decode(data, path, any_schema=True, remedy=_RAISE_EPOCH)
    latch = fields.get("latch", "")
    return EpochRecord(
        epoch=field(fields, "epoch", int, path, remedy=_RAISE_EPOCH),
        latch=latch if isinstance(latch, str) else "",
        schema=field(fields, "schema", int, path, remedy=_RAISE_EPOCH),
    )


def schema_raised(token: FencingToken, schema: int) -> bytes:
    """Return the content that a leader writes to `token.path` to raise the schema of the protected data.

    Write it in a fenced transaction. It is the last write of the term, since it changes the version that
    fences all writes. Abdicate then: a participant that knows the schema leads the next term under it.
    """
    return encode_epoch(EpochRecord(token.epoch, schema=schema))


def encode_leader(info: LeaderInfo) -> bytes:
    """Return the content of the leader node."""
    fields = participant_fields(info.participant)
    return encode(fields | {"epoch": info.epoch, "session_id": info.session_id})


def decode_leader(data: bytes, path: str) -> LeaderInfo:
    """Read the leader node. RecordError names `path` if the content is invalid."""
    fields = decode(data, path)
    return LeaderInfo(
        participant=read_participant(fields, path),
        epoch=field(fields, "epoch", int, path),
        session_id=field(fields, "session_id", int, path),
    )


@dataclass(frozen=True, slots=True)
class ComponentInfo:
    """The address of one component of the leader.

    The session id is that of the term, the same for all components.
    """

    participant_id: str
    epoch: int
    session: UUID
    address: str


def encode_component(info: ComponentInfo) -> bytes:
    """Return the content of a component node."""
    return encode(
        {
            "id": info.participant_id,
            "epoch": info.epoch,
            "session": str(info.session),
            "address": info.address,
        }
    )


def decode_component(data: bytes, path: str) -> ComponentInfo:
    """Read a component node. RecordError names `path` if the content is invalid."""
    fields = decode(data, path)
    text = field(fields, "session", str, path)
    try:
        session = UUID(text)
    except ValueError as exc:
        raise RecordError(f"{path}: field 'session' is {text!r}, expected a UUID; delete the node") from exc
    return ComponentInfo(
        participant_id=field(fields, "id", str, path),
        epoch=field(fields, "epoch", int, path),
        session=session,
        address=field(fields, "address", str, path),
    )
