"""Terms: the content of `epoch`, `leader` and `components/<name>`; the token that fences a term's writes."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from leader.errors import RecordError
from leader.protocol.participant import Participant, participant_fields, read_participant
from leader.protocol.record import decode, encode, field
from leader.protocol.requests import Check


@dataclass(frozen=True, slots=True)
class FencingToken:
    """What a leader shows with each write, so that a deposed one writes nothing.

    Args:
        path: The epoch node.
        version: Its znode version in our epoch; this is what ZooKeeper compares.
        epoch: The epoch number, for people, for logs and for fencing other stores.
        latch: The latch node of this term, which must be there. Its name is unique, and it never serves under
            a second epoch node, so a token stays invalid even if ZooKeeper's data are wiped and the epoch's
            version comes round again.
    """

    path: str
    version: int
    epoch: int
    latch: str | None = None

    def checks(self) -> tuple[Check, ...]:
        """What a transaction begins with that only this term may commit."""
        epoch = Check(self.path, self.version)
        return (epoch,) if self.latch is None else (epoch, Check(self.latch))


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


@dataclass(frozen=True, slots=True)
class ComponentInfo:
    """Where the leader's component of some name can be reached.

    Args:
        participant_id: Who leads.
        epoch: In which term.
        session: Issued for this term; the same for all components of it.
        address: As the component confirmed it.
    """

    participant_id: str
    epoch: int
    session: UUID
    address: str


def encode_component(info: ComponentInfo) -> bytes:
    """Content of a component node."""
    return encode(
        {
            "id": info.participant_id,
            "epoch": info.epoch,
            "session": str(info.session),
            "address": info.address,
        }
    )


def decode_component(data: bytes, path: str) -> ComponentInfo:
    """Read a component node. RecordError names `path` if it is not ours."""
    fields = decode(data, path)
    text = field(fields, "session", str, path)
    try:
        session = UUID(text)
    except ValueError as exc:
        raise RecordError(f"{path}: field 'session' is {text!r}, wanted a UUID; delete the node") from exc
    return ComponentInfo(
        participant_id=field(fields, "id", str, path),
        epoch=field(fields, "epoch", int, path),
        session=session,
        address=field(fields, "address", str, path),
    )
