"""What an election writes into ZooKeeper, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from leader.errors import RecordError
from leader.fencing import FencingToken

SCHEMA = 1

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Participant:
    """One process that takes part in the election.

    Args:
        id: Name in the cluster, the same after a restart.
        host: Where it can be reached.
        port: Ditto; 1 to 65535, or 0 if it serves nothing.
        boot_id: New at each start of the process, so that a dead one is not taken for its heir.
    """

    id: str
    host: str
    port: int
    boot_id: str


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


@dataclass(frozen=True, slots=True)
class ParticipantView:
    """One place in the queue, as seen from outside.

    Args:
        position: 0 for the oldest latch, which is next to lead if it does not lead already.
        is_leader: True for the confirmed leader only, not for one that merely holds the lock.
        node: Name of the latch node.
    """

    participant: Participant
    position: int
    is_leader: bool
    node: str
    session_id: int


def encode_participant(participant: Participant, session_id: int) -> bytes:
    """Content of a latch node."""
    return _encode(_participant_fields(participant) | {"session_id": session_id})


def decode_participant(data: bytes, path: str) -> Participant:
    """Read a latch node. RecordError names `path` if it is not ours."""
    return _participant(_decode(data, path), path)


def encode_epoch(epoch: int) -> bytes:
    """Content of the epoch node."""
    return _encode({"epoch": epoch})


def decode_epoch(data: bytes, path: str) -> int:
    """Read the epoch node. RecordError names `path` if it is not ours."""
    return _field(_decode(data, path), "epoch", int, path)


def encode_leader(info: LeaderInfo) -> bytes:
    """Content of the leader node."""
    fields = _participant_fields(info.participant)
    return _encode(fields | {"epoch": info.epoch, "session_id": info.session_id})


def decode_leader(data: bytes, path: str) -> LeaderInfo:
    """Read the leader node. RecordError names `path` if it is not ours."""
    fields = _decode(data, path)
    return LeaderInfo(
        participant=_participant(fields, path),
        epoch=_field(fields, "epoch", int, path),
        session_id=_field(fields, "session_id", int, path),
    )


def _participant_fields(participant: Participant) -> dict[str, Any]:
    return {
        "id": participant.id,
        "host": participant.host,
        "port": participant.port,
        "boot_id": participant.boot_id,
    }


def _participant(fields: Mapping[str, Any], path: str) -> Participant:
    return Participant(
        id=_field(fields, "id", str, path),
        host=_field(fields, "host", str, path),
        port=_field(fields, "port", int, path),
        boot_id=_field(fields, "boot_id", str, path),
    )


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps({"schema": SCHEMA, **fields}, sort_keys=True).encode()


def _decode(data: bytes, path: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(data)
    except ValueError as exc:
        raise RecordError(f"{path} holds no JSON; delete the node if it is not needed") from exc
    if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
        schema = fields.get("schema") if isinstance(fields, dict) else None
        raise RecordError(
            f"{path} has schema {schema!r}, this release reads {SCHEMA}; upgrade the older side"
        )
    return fields


def _field(fields: Mapping[str, Any], name: str, kind: type[_T], path: str) -> _T:
    value = fields.get(name)
    if type(value) is not kind:  # not isinstance: a bool is an int, and no epoch
        raise RecordError(f"{path}: field {name!r} is {value!r}, wanted {kind.__name__}; delete the node")
    return value
