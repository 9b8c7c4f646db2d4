"""The queue as seen from outside."""

from __future__ import annotations

from dataclasses import dataclass

from leader.protocol.card import Card
from leader.protocol.participant import Participant


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
