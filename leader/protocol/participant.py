"""Who takes part: the content of a latch node, and the card in `members/<id>`."""

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


def encode_id(participant: Participant) -> bytes:
    """Content of a latch node: the id, as Curator writes and reads it."""
    return participant.id.encode()


def decode_id(data: bytes, path: str) -> str:
    """Read a latch node, ours or Curator's. RecordError names `path` if it holds no text."""
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise RecordError(f"{path} holds no participant id; delete the node if it is not needed") from exc


def participant_fields(participant: Participant) -> dict[str, Any]:
    """A participant, as records that hold one name it."""
    return {
        "id": participant.id,
        "host": participant.host,
        "port": participant.port,
        "boot_id": participant.boot_id,
    }


def read_participant(fields: Mapping[str, Any], path: str) -> Participant:
    """The opposite of `participant_fields`. RecordError names `path` if there is none."""
    try:
        return Participant(
            id=field(fields, "id", str, path),
            host=field(fields, "host", str, path),
            port=field(fields, "port", int, path),
            boot_id=field(fields, "boot_id", str, path),
        )
    except ElectionConfigError as exc:
        raise RecordError(f"{path} names no participant ({exc}); delete the node") from exc


MOST_REASONS, LONGEST_REASON = 5, 200
"""Reasons on a card, and characters of each: a guard may have thousands, and a node must stay small."""


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
        reasons: Why it is not ready, or why its guard last said no; the first few, each cut.
        declined: Its guard said no, and has not been content since.
        leads: It has taken the lead; who stands behind it is next in line.
        queues: It can take the lock, now or after a back-off: false out of the queue for good, and while
            something other than its guard bars it, such as an id in use or a schema that it does not know.
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
        """Not ready, or a reserve."""
        return self.rank.unready == 2 or self.rank.reserve > 0


def yields_to(own: Card, others: Iterable[Card]) -> Card | None:
    """The participant that takes the lead instead of `own`: the best that is ready, if it is better.

    Args:
        own: Of the first in the queue.
        others: Of the other participants in the queue.
    """
    ready = [card for card in others if card.rank.unready == 0 and not card.nofailover]
    best = min(ready, key=lambda card: card.rank, default=None)
    return best if own.may_yield and best is not None and best.rank < own.rank else None


def encode_card(card: Card) -> bytes:
    """Content of a member node."""
    rank = card.rank
    return encode(
        participant_fields(card.participant)
        | {
            "session_id": card.session_id,
            "unready": rank.unready,
            "missing": rank.missing,
            "missing_bytes": rank.missing_bytes,
            "reserve": rank.reserve,
            "nofailover": card.nofailover,
            "reasons": [reason[:LONGEST_REASON] for reason in card.reasons[:MOST_REASONS]],
            "declined": card.declined,
            "leads": card.leads,
            "queues": card.queues,
        }
    )


def decode_card(data: bytes, path: str) -> Card:
    """Read a member node. RecordError names `path` if it is not ours."""
    fields = decode(data, path)
    participant = read_participant(fields, path)

    def number(name: str) -> int:
        return field(fields, name, int, path)

    return Card(
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
