"""The leader node: written when leadership is confirmed, corrected when somebody touches it."""

from __future__ import annotations

import structlog

from leader.office.claim import EpochClaimant
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import (
    NodeMissingError,
    Stat,
    Steps,
    TransactionFailedError,
    VersionMismatchError,
    delete,
    get,
    transaction,
)
from leader.protocol.terms import LeaderInfo, Leadership, encode_leader
from leader.publication import fences, placing

_log = structlog.get_logger(__name__)

_WRITE_TRIES = 3


class Announcement:
    """Keeps the leader node as it should be, while we lead."""

    def __init__(self, paths: ElectionPaths, claimant: EpochClaimant) -> None:
        self._paths, self._claimant = paths, claimant

    def keep(self, leadership: Leadership, session_id: int) -> Steps[str | None]:
        """Write the node, or correct it, and watch it.

        Returns:
            Why we lead no more, if ZooKeeper refused; None if the node is as it should be.
        """
        path = self._paths.leader
        data = encode_leader(LeaderInfo(leadership.participant, leadership.epoch, session_id))
        fencing = fences(leadership.token)
        found: tuple[bytes, Stat] | None = None
        look, self._claimant.announced = self._claimant.announced, True  # also if we never hear that it is
        for attempt in range(_WRITE_TRIES):
            if look:
                found = yield from self._look(path)
                if found is not None and found[1].owner == session_id and found[0] == data:
                    return None
                if attempt == 0:
                    _log.warning("leader_node_corrected", epoch=leadership.epoch)
            look = True  # what we wrote may be touched before we watch it
            try:
                yield from transaction(*fencing, *placing(path, data, session_id, found))
            except TransactionFailedError as exc:
                exc.raise_if_forbidden()
                if exc.index < len(fencing):
                    return f"epoch {leadership.epoch} is over: {exc.cause}"
        return f"somebody keeps changing {path}, {_WRITE_TRIES} times while we wrote it"

    def _look(self, path: str) -> Steps[tuple[bytes, Stat] | None]:
        try:
            return (yield from get(path, watch=True))
        except NodeMissingError:
            return None

    def _withdraw(self, session_id: int) -> Steps[None]:
        """Delete the node, if it is ours. Should the next leader replace it just then, it writes it again."""
        try:
            _, stat = yield from get(self._paths.leader)
            if stat.owner == session_id:
                yield from delete(self._paths.leader, stat.version)
        except (NodeMissingError, VersionMismatchError):
            return

    def take_back(self, session_id: int | None) -> Steps[None]:
        """The latch is gone: take away what the farewell could not, as after an epoch that is over."""
        claimant = self._claimant
        left, claimant.announced = claimant.announced and not claimant.took_it_along, False
        claimant.took_it_along = False
        if not left or session_id is None:
            return
        try:
            yield from self._withdraw(session_id)
        except Exception as exc:  # noqa: BLE001 - the next leader writes over it, or our session's end takes it
            _log.info("leader_node_left_behind", error=str(exc))
