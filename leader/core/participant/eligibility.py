"""Compares a participant with the others: whether it may claim the lock, and whether its verdict counts.

Before a claim: operators' requests, and whether a better participant is in the queue. After the guard's
answer: a degraded yes counts only while no other participant is ready; a no is overruled after every
participant has declined for `forced_takeover_after`, and then the best-ranked participant leads.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import structlog

from leader.clock import Clock
from leader.core.latch import model as latch_m
from leader.core.latch.model import Node
from leader.elector import Verdict
from leader.errors import RecordError, in_words
from leader.protocol.control import Control, decode_control
from leader.protocol.participant import MemberNode, Participant, decode_id, decode_member, yields_to
from leader.protocol.paths import ElectionPaths, in_queue_order
from leader.protocol.requests import NotPermittedError, Steps, children_if_there, exists, get_each, watched

_log = structlog.get_logger(__name__)

MAX_YIELDS = 3
"""Limit of yields of one participant while no participant leads; after that its own guard decides."""


class Eligibility:
    """The rules before a claim. They only choose the claiming participant; epoch and guard still apply.

    `own` returns this participant's present member node.
    """

    def __init__(self, paths: ElectionPaths, own: Callable[[], MemberNode], declines: DeclineTracker) -> None:
        self._paths, self._own, self._declines = paths, own, declines
        self._control = Control()
        self._yields = 0

    @property
    def paused(self) -> str | None:
        """The operator's reason for a pause, as last read; None without a pause. Any thread."""
        pause = self._control.pause
        return None if pause is None else pause.reason

    def refresh(self) -> Steps[tuple[Control, int | None]]:
        """Read and watch the control node. A node that cannot be read counts as empty, also a forbidden one.

        Returns its content and version; no version if it is missing or unreadable.
        """
        control, version = Control(), None
        try:
            node = yield from watched(self._paths.control)
            if node is not None:
                control, version = decode_control(node[0], self._paths.control), node[1].version
        except (RecordError, NotPermittedError) as exc:
            _log.warning("control_unread", error=str(exc))
        self._control = control
        return control, version

    def forget_requests(self) -> None:
        """Forget what operators asked for: this participant no longer watches it."""
        self._control = Control()

    @property
    def open(self) -> bool:
        """True when the next participant in the queue may lead: no pause, no switchover."""
        return self._control.pause is None and self._control.switchover is None

    def settled(self) -> None:
        """Forget yields and declines, because a participant leads."""
        self._yields = 0
        self._declines.reset()

    def look_for_leader(self) -> Steps[None]:
        """Forget yields and declines if a participant leads. Reads nothing while there are none."""
        counts = self._yields or self._declines.everybody_declines
        if counts and (yield from exists(self._paths.leader)) is not None:
            self.settled()

    def objection(self, node: Node) -> Steps[latch_m.Postponed | latch_m.Barred | None]:
        """Returns why this participant must not claim the lock now; None if it may.

        During a pause only its leader may. It may have lost its place, so the others yield to it.
        """
        own, control = self._own(), self._control
        me, pause = own.participant.id, control.pause
        better: str | None = None
        if pause is not None:
            if pause.leader_id == me:
                return None
            better = yield from self._other(node, pause.leader_id)
            if better is None:
                return latch_m.Postponed(f"elections are paused: {pause.reason}")
        elif control.switchover is not None:
            if control.switchover.to != me:
                better = yield from self._other(node, control.switchover.to)
        elif self._yields < MAX_YIELDS and own.may_yield:
            better = yield from self._better_than(node, own)
            self._yields += better is not None
        return None if better is None else latch_m.Barred(f"yields to {better}", at_once=True)

    def _other(self, node: Node, wanted: str) -> Steps[str | None]:
        """Returns `wanted`, whom an operator's request names, if it is in the queue."""
        return wanted if wanted in (yield from self._others(node)) else None

    def _better_than(self, node: Node, own: MemberNode) -> Steps[str | None]:
        others = yield from self._others(node)
        better = yields_to(own, (yield from read_members(self._paths, others)))
        return None if better is None else better.participant.id

    def _others(self, node: Node) -> Steps[list[str]]:
        """Returns the ids of all other participants in the queue."""
        queued = yield from read_queued(self._paths)
        return [participant_id for name, participant_id in queued.items() if name != node.name]


def read_queued(paths: ElectionPaths) -> Steps[dict[str, str]]:
    """Returns the id of each participant in the queue by the name of its latch, oldest first.

    Leaves out nodes that are no latch, and latches without a readable id.
    """
    children = yield from children_if_there(paths.queue)
    names = {paths.latch(name): name for name in in_queue_order(children)}
    nodes = yield from get_each(list(names))
    queued: dict[str, str] = {}
    for path, (data, _) in nodes.items():
        with suppress(RecordError):
            queued[names[path]] = decode_id(data, path)
    return queued


def read_members(paths: ElectionPaths, ids: list[str] | None = None) -> Steps[list[MemberNode]]:
    """Read member nodes: those of `ids`, or all. Leaves out those that are gone or cannot be read."""
    if ids is None:
        ids = yield from children_if_there(paths.members)
    members: list[MemberNode] = []
    nodes = yield from get_each(paths.members_of(ids))
    for path, (data, _) in nodes.items():
        with suppress(RecordError):
            members.append(decode_member(data, path))
    return members


class DeclineTracker:
    """Compares a verdict with the others' member nodes. Reads these after a no or a degraded yes."""

    def __init__(
        self,
        paths: ElectionPaths,
        participant: Participant,
        forced_takeover_after: timedelta | None,
        clock: Clock,
    ) -> None:
        self._paths, self._me, self._limit, self._clock = paths, participant, forced_takeover_after, clock
        self._since: timedelta | None = None

    @property
    def everybody_declines(self) -> bool:
        """True when every participant declined and none led, at the last read."""
        return self._since is not None

    def reset(self) -> None:
        """Start the measured time again: a participant leads, or may lead without this one's knowledge."""
        self._since = None

    def admitted(self, verdict: Verdict) -> Steps[Verdict]:
        """Returns the guard's verdict; no instead of a degraded yes while another participant is ready."""
        if not (verdict.ready and verdict.degraded):
            return verdict
        try:
            others = yield from self._others()
        except Exception as exc:  # noqa: BLE001 - a participant that could not be read may be ready
            return _refused(verdict, f"the other participants cannot be read: {in_words(exc)}")
        ready = [member for member in others if member.rank.unready == 0]
        if ready:
            return _refused(verdict, f"{min(ready, key=lambda member: member.rank).participant.id} is ready")
        _log.warning("degraded_admitted", reasons=list(verdict.reasons))
        return verdict

    def weighed(self, verdict: Verdict, own: MemberNode) -> Steps[Verdict]:
        """Returns the admitted verdict; yes instead of no when a forced take-over is due."""
        if verdict.ready:
            self.reset()
            return verdict
        try:
            forced = yield from self._overrules(own, self._clock())
        except Exception as exc:  # noqa: BLE001 - without the others' member nodes, the guard alone decides
            _log.warning("peers_unread", error=str(exc))
            return verdict
        if not forced:
            return verdict
        _log.warning("takeover_forced", reasons=list(verdict.reasons))
        return replace(verdict, ready=True)

    def time_until_forced(self, pause: timedelta) -> timedelta:
        """Limit of a back-off, so that a forced take-over is not late; `pause` if none is expected."""
        if self._since is None or self._limit is None:
            return pause
        left = self._since + self._limit - self._clock()
        return left if left > timedelta(0) else min(pause, self._limit / 10)

    def _overrules(self, own: MemberNode, now: timedelta) -> Steps[bool]:
        """True if a forced take-over is due and, of all member nodes, this participant has the best rank."""
        others = yield from self._others()
        led = (yield from exists(self._paths.leader)) is not None
        if led or not all(member.declined for member in others):
            self.reset()
            return False
        if self._since is None:
            self._since = now
        if self._limit is None or now - self._since < self._limit:
            return False
        return all(own.rank < member.rank for member in others)

    def _others(self) -> Steps[list[MemberNode]]:
        """Returns the nodes of all other participants that can take the lead, now or after a back-off."""
        members = yield from read_members(self._paths)
        return [
            member
            for member in members
            if member.participant.id != self._me.id and member.queues and not member.nofailover
        ]


def _refused(verdict: Verdict, why: str) -> Verdict:
    return replace(verdict, ready=False, reasons=(*verdict.reasons, why))
