"""Participants: the content of a latch node, and the member node in `members/<id>`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from leader.errors import ElectionConfigError, RecordError
from leader.protocol.paths import checked_name
from leader.protocol.record import decode, encode, field


@dataclass(frozen=True, slots=True)
class Participant:
    """One process that takes part in the election.

    Args:
        id: Name in the cluster, the same after a restart. Also the data of its latch, as with Curator.
        port: Port on that host, 1 to 65535; 0 if it serves nothing.
        boot_id: New at each start of the process. Distinguishes the process from an earlier one with its id.

    Raises:
        ElectionConfigError: The id cannot name a ZooKeeper node, or the port is out of range.
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
        """Make a participant with only an id. The id is not checked, because a Curator latch may have any."""
        stranger = object.__new__(cls)
        for name, value in (("id", participant_id), ("host", ""), ("port", 0), ("boot_id", "")):
            object.__setattr__(stranger, name, value)
        return stranger


def encode_id(participant: Participant) -> bytes:
    """Return the content of a latch node: the id, as Curator writes and reads it."""
    return participant.id.encode()


def decode_id(data: bytes, path: str) -> str:
    """Read a latch node of this package or of Curator. RecordError names `path` if it is not text."""
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise RecordError(f"{path} contains no participant id; delete the node if it is not needed") from exc


def participant_fields(participant: Participant) -> dict[str, Any]:
    """Return the fields of a participant, as records contain them."""
    return {
        "id": participant.id,
        "host": participant.host,
        "port": participant.port,
        "boot_id": participant.boot_id,
    }


def read_participant(fields: Mapping[str, Any], path: str) -> Participant:
    """Undo `participant_fields`. RecordError names `path` if a field is invalid."""
    try:
        return Participant(
            id=field(fields, "id", str, path),
            host=field(fields, "host", str, path),
            port=field(fields, "port", int, path),
            boot_id=field(fields, "boot_id", str, path),
        )
    except ElectionConfigError as exc:
        raise RecordError(f"{path} contains no valid participant ({exc}); delete the node") from exc


MAX_REASONS, LONGEST_REASON = 5, 200
"""Limits of a member node: reasons, and characters of each. A guard may have thousands of reasons."""


@dataclass(frozen=True, slots=True, order=True)
class Rank:
    """Order of participants by how much they lack to lead. Less is better; the order is total.

    Args:
        unready: 0 if ready, 1 if not known, 2 if not ready.
        reserve: 0; above 0 for a reserve, which yields to every ready participant with a better rank.
        id: Id of the participant. It makes all ranks different.
    """

    unready: int = 1
    missing: int = 0
    missing_bytes: int = 0
    reserve: int = 0
    id: str = ""


@dataclass(frozen=True, slots=True)
class MemberNode:
    """What a participant publishes about itself, in the queue or out of it.

    Args:
        session_id: Session that owns its latch and this member node.
        rank: Its readiness; participants compare their ranks.
        nofailover: True when it never leads.
        reasons: Why it is not ready, or why its guard last said no. Limited by `MAX_REASONS` and
            `LONGEST_REASON`.
        declined: True from a no of its guard until the guard says yes or the participant becomes ready.
        leads: True while its term lasts. The participant behind it then watches for a hand-over.
        queues: True when it can take the lock, now or after a back-off. False after its removal from the
            queue, and while something other than its guard bars it, for example an id in use or a schema that
            it does not know.
    """

    participant: Participant
    session_id: int
    rank: Rank
    nofailover: bool = False
    reasons: tuple[str, ...] = ()
    declined: bool = False
    leads: bool = False
    queues: bool = True

    @property
    def may_yield(self) -> bool:
        """True when it is not ready, or is a reserve."""
        return self.rank.unready == 2 or self.rank.reserve > 0


def yields_to(own: MemberNode, others: Iterable[MemberNode]) -> MemberNode | None:
    """Return the participant to which `own` yields: the best ready one, if its rank is better; else None.

    `own` is the first in the queue, `others` are behind it.
    """
    ready = [member for member in others if member.rank.unready == 0 and not member.nofailover]
    best = min(ready, key=lambda member: member.rank, default=None)
    return best if own.may_yield and best is not None and best.rank < own.rank else None


def encode_member(member: MemberNode) -> bytes:
    """Return the content of a member node."""
    rank = member.rank
    return encode(
        participant_fields(member.participant)
        | {
            "session_id": member.session_id,
            "unready": rank.unready,
            "missing": rank.missing,
            "missing_bytes": rank.missing_bytes,
            "reserve": rank.reserve,
            "nofailover": member.nofailover,
            "reasons": [reason[:LONGEST_REASON] for reason in member.reasons[:MAX_REASONS]],
            "declined": member.declined,
            "leads": member.leads,
            "queues": member.queues,
        }
    )


def decode_member(data: bytes, path: str) -> MemberNode:
    """Read a member node. RecordError names `path` if the content is invalid."""
    fields = decode(data, path)
    participant = read_participant(fields, path)

    def number(name: str) -> int:
        return field(fields, name, int, path)

    return MemberNode(
        participant=participant,
        session_id=number("session_id"),
        rank=Rank(
            number("unready"), number("missing"), number("missing_bytes"), number("reserve"), participant.id
        ),
        nofailover=field(fields, "nofailover", bool, path),
        reasons=tuple(str(reason) for reason in field(fields, "reasons", list, path)),
        declined=field(fields, "declined", bool, path),
        leads=field(fields, "leads", bool, path),
        queues=field(fields, "queues", bool, path),
    )
