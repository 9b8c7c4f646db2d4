"""The leader node: written when leadership is confirmed, corrected when somebody touches it."""

from __future__ import annotations

import structlog

from leader.core.participant.claim import EpochClaimant
from leader.errors import RecordError
from leader.protocol.ephemeral import EphemeralNode
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Steps
from leader.protocol.terms import LeaderInfo, Leadership, encode_leader

_log = structlog.get_logger(__name__)


class Announcement:
    """Keeps the leader node as it should be, while we lead."""

    def __init__(self, paths: ElectionPaths, claimant: EpochClaimant) -> None:
        self._node, self._claimant = EphemeralNode(paths.leader), claimant

    def keep(self, leadership: Leadership, session_id: int) -> Steps[str | None]:
        """Write the node, or correct it, and watch it.

        Returns:
            Why we lead no more, if ZooKeeper refused; None if the node is as it should be.
        """
        data = encode_leader(LeaderInfo(leadership.participant, leadership.epoch, session_id))
        self._claimant.announced = True  # also if we never hear that it is
        try:
            refused = yield from self._node.keep(data, session_id, leadership.token.checks(), watch=True)
        except RecordError as exc:
            return str(exc)
        return None if refused is None else f"epoch {leadership.epoch} is over: {refused}"

    def take_back(self, session_id: int | None) -> Steps[None]:
        """The latch is gone: delete what the withdrawal could not, as after an epoch that is over."""
        claimant = self._claimant
        left, claimant.announced = claimant.announced and not claimant.took_it_along, False
        claimant.took_it_along = False
        try:
            yield from self._node.withdraw(session_id if left else None)
        except Exception as exc:  # noqa: BLE001 - the next leader writes over it, or our session's end takes it
            _log.info("leader_node_left_behind", error=str(exc))
