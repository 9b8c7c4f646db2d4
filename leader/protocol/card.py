"""What a participant says of itself: the content of `members/<id>`."""

from __future__ import annotations

from dataclasses import dataclass

from leader.protocol.encoding import decode, encode, field
from leader.protocol.participant import Participant, participant_fields, read_participant


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
            "reasons": list(card.reasons),
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
