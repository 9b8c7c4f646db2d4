"""Who may take the lock now: what operators want, and whether somebody better stands in the queue."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from leader.core.latch import model as latch_m
from leader.core.latch.model import Node
from leader.errors import RecordError
from leader.protocol.card import Card, decode_card, yields_to
from leader.protocol.control import Control, decode_control
from leader.protocol.participant import decode_id
from leader.protocol.paths import ElectionPaths, in_queue_order
from leader.protocol.requests import NodeMissingError, Steps, exists, get_children, get_each, watched

MAX_YIELDS = 3
"""How often one participant yields to a better one before somebody leads; then its own guard decides."""


class Eligibility:
    """The rules before a claim. They choose who; they keep nobody safe: that is what epoch and guard do.

    Args:
        own: Our card, as it is now.
    """

    def __init__(self, paths: ElectionPaths, own: Callable[[], Card]) -> None:
        self._paths, self._own = paths, own
        self._control = Control()
        self._yields = 0
        self.paused: str | None = None
        """Why there is a pause, if there is one."""

    def refresh(self) -> Steps[tuple[Control, int | None]]:
        """Read what operators want, and watch it. Something unreadable counts as nothing.

        Returns:
            Content and version of the control node; the version is None if there is nothing to read.
        """
        control, version = Control(), None
        with suppress(RecordError):
            found = yield from watched(self._paths.control)
            if found is not None:
                control, version = decode_control(found[0], self._paths.control), found[1].version
        self._control = control
        self.paused = None if control.pause is None else control.pause.reason
        return control, version

    @property
    def open(self) -> bool:
        """Whether whoever stands next may lead: no pause, no wish of an operator for somebody else."""
        return self._control.pause is None and self._control.switchover is None

    def settled(self) -> None:
        """A participant leads, so the count of yields starts again."""
        self._yields = 0

    def look_for_leader(self) -> Steps[None]:
        """Start the count of yields again if a participant leads. Without a yield nothing is read."""
        if self._yields and (yield from exists(self._paths.leader)) is not None:
            self.settled()

    def objection(self, node: Node) -> Steps[latch_m.Postponed | latch_m.Barred | None]:
        """Why we should not claim now; None if nothing speaks against it."""
        own, control = self._own(), self._control
        me = own.participant.id
        if control.pause is not None and control.pause.leader_id != me:
            return latch_m.Postponed(f"elections are paused: {control.pause.reason}")
        better: str | None = None
        if control.switchover is not None:
            if control.switchover.to != me:
                better = yield from self._other(node, control.switchover.to)
        elif self._yields < MAX_YIELDS and own.may_yield:
            better = yield from self._better_than(node, own)
            self._yields += better is not None
        return None if better is None else latch_m.Barred(f"yields to {better}", at_once=True)

    def _other(self, node: Node, wanted: str) -> Steps[str | None]:
        """The participant whom an operator named, if it is in the queue."""
        for other in (yield from self._others(node)):
            if other == wanted:
                return wanted
        return None

    def _better_than(self, node: Node, own: Card) -> Steps[str | None]:
        others = yield from self._others(node)
        better = yields_to(own, (yield from read_cards(self._paths, others)))
        return None if better is None else better.participant.id

    def _others(self, node: Node) -> Steps[list[str]]:
        """Ids of all other participants in the queue."""
        queued = yield from read_queued(self._paths)
        return [participant_id for name, participant_id in queued.items() if name != node.name]


def read_queued(paths: ElectionPaths) -> Steps[dict[str, str]]:
    """Ids of everybody in the queue, oldest first, by the name of the latch. Strangers are left out."""
    try:
        children = yield from get_children(paths.queue)
    except NodeMissingError:
        return {}
    names = {paths.latch(entry.name): entry.name for entry in in_queue_order(children)}
    found = yield from get_each(list(names))
    queued: dict[str, str] = {}
    for path, (data, _) in found.items():
        with suppress(RecordError):
            queued[names[path]] = decode_id(data, path)
    return queued


def read_cards(paths: ElectionPaths, ids: list[str] | None = None) -> Steps[list[Card]]:
    """Read cards: those of `ids`, or all. What vanishes or cannot be read is left out."""
    if ids is None:
        try:
            ids = yield from get_children(paths.members)
        except NodeMissingError:
            return []
    cards: list[Card] = []
    found = yield from get_each([paths.card(participant_id) for participant_id in ids])
    for path, (data, _) in found.items():
        with suppress(RecordError):
            cards.append(decode_card(data, path))
    return cards
