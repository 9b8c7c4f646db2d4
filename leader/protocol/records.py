"""What an election writes into ZooKeeper, and how it is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from leader.errors import ElectionConfigError, RecordError
from leader.fencing import FencingToken
from leader.protocol.paths import checked_name

SCHEMA = 1

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Participant:
    """One process that takes part in the election.

    Args:
        id: Name in the cluster, the same after a restart; also the data of its latch, as with Curator.
        host: Where it can be reached.
        port: Ditto; 1 to 65535, or 0 if it serves nothing.
        boot_id: New at each start of the process, so that a dead one is not taken for its heir.

    Raises:
        ElectionConfigError: The id cannot name a ZooKeeper node, or the port is none.
    """

    id: str
    host: str = ""
    port: int = 0
    boot_id: str = ""

    def __post_init__(self) -> None:
        checked_name(self.id, "participant id")
        if not 0 <= self.port <= 65535:
            raise ElectionConfigError(f"port {self.port} of {self.id} must be 0 to 65535")

    @classmethod
    def of_any(cls, participant_id: str) -> Participant:
        """A stranger of whom only the id is known, which may be one that we would not take ourselves."""
        stranger = object.__new__(cls)
        for name, value in (("id", participant_id), ("host", ""), ("port", 0), ("boot_id", "")):
            object.__setattr__(stranger, name, value)
        return stranger


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


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """How far a participant is from being able to lead; less is better, so ranks have a total order.

    Args:
        unready: 0 if ready, 1 if not known, 2 if not.
        missing: How many things it lacks.
        missing_bytes: How much is left to fetch.
        reserve: 0 for who shall lead, more for who shall lead only if nobody else can.
        id: Of the participant; makes the best one unique.
    """

    unready: int = 1
    missing: int = 0
    missing_bytes: int = 0
    reserve: int = 0
    id: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """What a participant says of itself, in the queue or out of it.

    Args:
        session_id: Owner of its latch and of this card.
        rank: Its readiness, for the others to compare with theirs.
        nofailover: It never leads.
        reasons: Why it is not ready, or why its guard last said no.
        declined: Its guard said no, and has not been content since.
        leads: It has taken office; who stands behind it is next in line.
        queues: It is in the queue, or will come back to it by itself.
    """

    participant: Participant
    session_id: int
    rank: Rank
    nofailover: bool = False
    reasons: tuple[str, ...] = ()
    declined: bool = False
    leads: bool = False
    queues: bool = True


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


@dataclass(frozen=True, slots=True)
class ParticipantView:
    """One place in the queue, as seen from outside.

    Args:
        participant: As on its card; with an id alone if it has none, as a Curator latch.
        position: 0 for the oldest latch, which is next to lead if it does not lead already.
        is_leader: True for the confirmed leader only, not for one that merely holds the lock.
        node: Name of the latch node.
        session_id: Owner of the latch node.
        card: What it says of itself, if it does.
    """

    participant: Participant
    position: int
    is_leader: bool
    node: str
    session_id: int
    card: Card | None = None


def encode_id(participant: Participant) -> bytes:
    """Content of a latch node: the id, as Curator writes and reads it."""
    return participant.id.encode()


def decode_id(data: bytes, path: str) -> str:
    """Read a latch node, ours or Curator's. RecordError names `path` if it holds no text."""
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise RecordError(f"{path} holds no participant id; delete the node if it is not needed") from exc


def encode_card(card: Card) -> bytes:
    """Content of a member node."""
    rank = card.rank
    return _encode(
        _participant_fields(card.participant)
        | {
            "session_id": card.session_id,
            "unready": rank.unready,
            "missing": rank.missing,
            "missing_bytes": rank.missing_bytes,
            "reserve": rank.reserve,
            "nofailover": card.nofailover,
            "reasons": list(card.reasons),
            "declined": card.declined,
            "leads": card.leads,
            "queues": card.queues,
        }
    )


def decode_card(data: bytes, path: str) -> Card:
    """Read a member node. RecordError names `path` if it is not ours."""
    fields = _decode(data, path)
    participant = _participant(fields, path)

    def number(name: str) -> int:
        return _field(fields, name, int, path)

    return Card(
        participant=participant,
        session_id=number("session_id"),
        rank=Rank(
            number("unready"), number("missing"), number("missing_bytes"), number("reserve"), participant.id
        ),
        nofailover=_field(fields, "nofailover", bool, path),
        reasons=tuple(str(reason) for reason in _field(fields, "reasons", list, path)),
        declined=_field(fields, "declined", bool, path),
        leads=_field(fields, "leads", bool, path),
        queues=_field(fields, "queues", bool, path),
    )


def encode_control(control: Control) -> bytes:
    """Content of the control node."""
    return _encode(
        {
            "pause": None if control.pause is None else asdict(control.pause),
            "switchover": None if control.switchover is None else asdict(control.switchover),
        }
    )


def decode_control(data: bytes, path: str) -> Control:
    """Read the control node. RecordError names `path` if it is not ours."""
    fields = _decode(data, path)
    pause, switchover = fields.get("pause"), fields.get("switchover")
    return Control(
        pause=Pause(_field(pause, "leader_id", str, path), _field(pause, "reason", str, path))
        if isinstance(pause, dict)
        else None,
        switchover=Switchover(
            _field(switchover, "to", str, path),
            _field(switchover, "epoch", int, path),
            _field(switchover, "reason", str, path),
        )
        if isinstance(switchover, dict)
        else None,
    )


def encode_epoch(epoch: int, latch: str = "") -> bytes:
    """Content of the epoch node: the number, and the name of the latch node it was raised for."""
    return _encode({"epoch": epoch, "latch": latch})


def decode_epoch(data: bytes, path: str) -> tuple[int, str]:
    """Read the epoch node; a latch that is not named is "". RecordError names `path` if it is not ours."""
    fields = _decode(data, path)
    latch = fields.get("latch", "")
    return _field(fields, "epoch", int, path), latch if isinstance(latch, str) else ""


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
    try:
        return Participant(
            id=_field(fields, "id", str, path),
            host=_field(fields, "host", str, path),
            port=_field(fields, "port", int, path),
            boot_id=_field(fields, "boot_id", str, path),
        )
    except ElectionConfigError as exc:
        raise RecordError(f"{path} names no participant ({exc}); delete the node") from exc


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
