"""The queue as seen from outside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leader.protocol.card import Card, yields_to
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


def next_in_line(queue: Sequence[ParticipantView]) -> ParticipantView | None:
    """Who would lead if the leader left now, by the rule of the election; its guard has the last word.

    Args:
        queue: As `get_all_participants` returns it.
    """
    behind = [view for view in queue if not view.is_leader]
    first = behind[0] if behind else None
    if first is None or first.card is None:
        return first
    better = yields_to(first.card, [view.card for view in behind if view.card is not None])
    return first if better is None else next(view for view in behind if view.card is better)
