"""What a leader does again and again: keep its leader node right, and look what operators want."""

from __future__ import annotations

from contextlib import suppress

import structlog

from leader.core.latch.model import Node
from leader.core.participant import model as m
from leader.core.participant.claim import EpochClaimant
from leader.core.participant.eligibility import Eligibility, read_queued
from leader.errors import RecordError
from leader.protocol.control import Control, Switchover, encode_control
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Check, SetData, Steps, TransactionFailedError, transaction
from leader.protocol.terms import LeaderInfo, Leadership, encode_leader

_log = structlog.get_logger(__name__)


class Publisher:
    """See the module. The leader node is written when leadership is confirmed, and corrected when touched."""

    def __init__(self, paths: ElectionPaths, claimant: EpochClaimant, eligibility: Eligibility) -> None:
        self._paths, self._claimant, self._eligibility = paths, claimant, eligibility

    def publish(
        self, leadership: Leadership, session_id: int, node: Node | None
    ) -> Steps[m.Refused | m.AbdicationAsked | None]:
        """Write or correct the leader node, and watch it; find our successor; see to operators' wishes.

        Args:
            leadership: The present term.
            session_id: Of the present session, which owns the leader node.
            node: Ours in the queue, if it holds the lock.

        Returns:
            Why we lead no more, or must step down; None if we go on.
        """
        data = encode_leader(LeaderInfo(leadership.participant, leadership.epoch, session_id))
        leader_node = self._claimant.leader_node
        try:
            refused = yield from leader_node.keep(data, session_id, leadership.token.checks(), watch=True)
        except RecordError as exc:
            return m.Refused(str(exc))
        if refused is not None:
            return m.Refused(f"epoch {leadership.epoch} is over: {refused}")
        control, version = yield from self._eligibility.refresh()
        if node is not None:
            yield from self._claimant.find_successor(node)
        wish = yield from self._see_to(control, version, leadership)
        if wish is not None:
            return m.AbdicationAsked(wish.in_words(), leadership.epoch, at_once=bool(wish.to))
        return None

    def take_back(self, session_id: int | None) -> Steps[None]:
        """The latch is gone: delete what the withdrawal could not, as after an epoch that is over."""
        try:
            yield from self._claimant.leader_node.withdraw(session_id)
        except Exception as exc:  # noqa: BLE001 - the next leader writes over it, or our session's end takes it
            _log.info("leader_node_left_behind", error=str(exc))

    def _see_to(
        self, control: Control, version: int | None, leadership: Leadership
    ) -> Steps[Switchover | None]:
        """Look whether an operator wants us to step down; remove the wish if it is fulfilled or void.

        `version` is that of the control node when `control` was read and its watch was set.

        Returns:
            The wish that we fulfil now; None if we go on.
        """
        wish = control.switchover
        if wish is None or version is None:
            return None
        ours_to_fulfil = wish.to != leadership.participant.id and wish.epoch == leadership.epoch
        if ours_to_fulfil and (not wish.to or wish.to in (yield from read_queued(self._paths)).values()):
            return wish
        token = leadership.token
        without = SetData(self._paths.control, encode_control(Control(pause=control.pause)), version)
        # Refused: another leads, or the node has changed since, and its watch makes us look again.
        with suppress(TransactionFailedError):
            yield from transaction(Check(token.path, token.version), without)
        return None
