"""The nodes that a participant keeps for others: its member node and, while it leads, the leader node."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import structlog

from leader.clock import Clock
from leader.core.latch.model import Node
from leader.core.lease import SessionView
from leader.core.participant import model as m
from leader.core.participant.claim import EpochClaimant
from leader.core.participant.eligibility import Eligibility, read_queued
from leader.errors import ParticipantIdInUseError, RecordError
from leader.protocol.control import Control, Switchover, encode_control
from leader.protocol.ephemeral import EphemeralNode
from leader.protocol.participant import MemberNode, Participant, Rank, decode_member, encode_member
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Check, SetData, Steps, TransactionFailedError, transaction
from leader.protocol.terms import LeaderInfo, Leadership, encode_leader

_log = structlog.get_logger(__name__)

_PATROL = 3
"""Interval between two reads of the own member node, in session timeouts. It is not watched."""


class MemberNodeKeeper:
    """Keeps the node in ZooKeeper equal to `member`. Driver thread only; any thread may read `trouble`.

    The member node serves the choice among participants; safety does not depend on it. So a failed write is
    tried again later, and does not disturb the latch.
    """

    def __init__(
        self,
        paths: ElectionPaths,
        session: SessionView,
        participant: Participant,
        clock: Clock,
        *,
        reserve: int,
        nofailover: bool,
    ) -> None:
        self._session, self._clock = session, clock
        self._node = EphemeralNode(paths.member(participant.id), self._refuse_another)
        self.member = MemberNode(participant, 0, Rank(reserve=reserve, id=participant.id), nofailover)
        """The member node as it should be in ZooKeeper."""
        self._written: MemberNode | None = None  # as it is in ZooKeeper; None if not known
        self.due_at: timedelta | None = clock()
        """When the core must call `keep` with `reread`."""
        self.trouble: str | None = None
        """Why the member node cannot be written: another participant has the same id."""

    # --- content of the member node -----------------------------------------------------------------

    def ready(self, ready: bool, missing: int, missing_bytes: int, reasons: tuple[str, ...]) -> bool:
        """Note this participant's readiness. It may be not ready although `missing` is 0.

        True if it has become ready. A repeated "ready" leaves the guard's answer on the member node.
        """
        rank = replace(
            self.member.rank, unready=0 if ready else 2, missing=missing, missing_bytes=missing_bytes
        )
        if ready and rank == self.member.rank:
            return False
        became = ready and self.member.rank.unready != 0
        declined = self.member.declined and not became
        self.member = replace(self.member, rank=rank, reasons=reasons, declined=declined)
        return became

    def judged(self, ready: bool, reasons: tuple[str, ...]) -> None:
        """Note the guard's answer."""
        self.member = replace(self.member, declined=not ready, reasons=() if ready else reasons)

    def moved(self, before: m.State, after: m.State) -> None:
        """Note whether this participant leads, and whether it can take the lock, now or after a back-off."""
        leads, is_out = isinstance(after, m.Leading), isinstance(after, m.Outside)
        if leads != self.member.leads:
            self.member = replace(self.member, leads=leads)
        again = isinstance(before, m.Leaving | m.BackingOff) and isinstance(after, m.InLine)
        if again or is_out or isinstance(before, m.Outside):
            self.member = replace(self.member, queues=not is_out)
            self.soon()

    def note_lock(self, event: m.LatchGained | m.LatchVetoed) -> None:
        """Note that the lock was gained or vetoed.

        After a veto without `at_once`, the others do not wait for this participant until its next try.
        """
        queues = isinstance(event, m.LatchGained) or (event.at_once and self.member.queues)
        if queues != self.member.queues:
            self.member = replace(self.member, queues=queues)
            if not queues:
                self.soon()

    # --- writing the member node --------------------------------------------------------------------

    def soon(self) -> None:
        """Make the next `keep` due now."""
        self.due_at = self._clock()

    def keep(self, *, reread: bool = False) -> Steps[m.LatchVetoed | m.Poked | None]:
        """Write the member node, if it has changed.

        `reread`: read the node even if `member` is as before, since another client may have changed it.
        Returns LatchVetoed if another participant has the same id; Poked if that is over; else None.
        """
        facts = self._session.liveness.facts
        session_id = facts.session_id
        if not facts.is_connected or session_id is None:
            if self.due_at is None:  # the driver needs a timer, too: it heals the session when one runs out
                self._retry()
            return None
        if self.due_at is None:
            self.due_at = self._clock() + facts.timeout * _PATROL
        wanted = replace(self.member, session_id=session_id)
        before, self._written = self._written, None
        try:
            if reread or wanted != before:
                yield from self._node.keep(encode_member(wanted), session_id, watch=False)
        except ParticipantIdInUseError as exc:
            self.trouble = str(exc)
            self._retry()
            return m.LatchVetoed(str(exc))
        except Exception as exc:  # noqa: BLE001 - safety needs no member node; the latch handles its own failures
            _log.warning("card_not_written", error=str(exc))
            self._retry()
            return None
        self._written = wanted
        was_in_use, self.trouble = self.trouble is not None, None
        return m.Poked() if was_in_use else None  # the back-off may end

    def withdraw(self) -> Steps[None]:
        """Delete the member node, if there is a connection. Otherwise the end of the session deletes it."""
        facts = self._session.liveness.facts
        if not facts.is_connected:
            return
        try:
            yield from self._node.withdraw(facts.session_id)
        except Exception as exc:  # noqa: BLE001 - the end of the session deletes it
            _log.info("card_left_to_session_end", error=str(exc))

    def _refuse_another(self, data: bytes) -> None:
        """Raises ParticipantIdInUseError if another process wrote `data`. Else it may be replaced."""
        try:
            holder = decode_member(data, self._node.path).participant
        except RecordError:
            return  # not a member node: it may be replaced
        if holder != self.member.participant:
            raise ParticipantIdInUseError(
                path=self._node.path, holder=f"{holder.host}:{holder.port}", boot_id=holder.boot_id
            )

    def _retry(self) -> None:
        self.due_at = self._clock() + self._session.liveness.facts.timeout / 4


class Publisher:
    """Writes the leader node when leadership is confirmed, and corrects it when another client changes it."""

    def __init__(self, paths: ElectionPaths, claimant: EpochClaimant, eligibility: Eligibility) -> None:
        self._paths, self._claimant, self._eligibility = paths, claimant, eligibility

    def publish(
        self, leadership: Leadership, session_id: int, node: Node | None
    ) -> Steps[m.Published | m.LeaderNodeRefused | m.AbdicationAsked]:
        """Write or correct the leader node and watch it; find the successor; handle operators' requests.

        `node` is this participant's latch, if it holds the lock. Returns Refused if it cannot lead on,
        AbdicationAsked if an operator asks it to step down, else Published.
        """
        data = encode_leader(LeaderInfo(leadership.participant, leadership.epoch, session_id))
        leader_node = self._claimant.leader_node
        try:
            refused = yield from leader_node.keep(data, session_id, leadership.token.checks(), watch=True)
        except RecordError as exc:
            return m.LeaderNodeRefused(str(exc))
        if refused is not None:
            return m.LeaderNodeRefused(f"epoch {leadership.epoch} is over: {refused}")
        control, version = yield from self._eligibility.refresh()
        if node is not None:
            yield from self._claimant.find_successor(node)
        wish = yield from self._requested_switchover(control, version, leadership)
        if wish is not None:
            return m.AbdicationAsked(wish.in_words(), leadership.epoch, at_once=bool(wish.to))
        return m.Published()

    def take_back(self, session_id: int | None) -> Steps[None]:
        """Delete the leader node after the latch has ended, if the withdrawal did not (epoch over)."""
        try:
            yield from self._claimant.leader_node.withdraw(session_id)
        except Exception as exc:  # noqa: BLE001 - the next leader, or the end of the session, removes it
            _log.info("leader_node_left_behind", error=str(exc))

    def _requested_switchover(
        self, control: Control, version: int | None, leadership: Leadership
    ) -> Steps[Switchover | None]:
        """Check whether an operator asks this leader to step down; remove a request that is done or void.

        `version` is that of the control node when `control` was read and its watch was set. Returns the
        request for which this leader must step down now.
        """
        wish = control.switchover
        if wish is None or version is None:
            return None
        # During a pause no other may lead, so a step-down for a named participant would only cost a term.
        allowed = control.pause is None or not wish.to
        ours_to_fulfil = allowed and wish.to != leadership.participant.id and wish.epoch == leadership.epoch
        if ours_to_fulfil and (not wish.to or wish.to in (yield from read_queued(self._paths)).values()):
            return wish
        token = leadership.token
        without = SetData(self._paths.control, encode_control(Control(pause=control.pause)), version)
        # If refused, another participant leads, or the node has changed: then its watch leads here again.
        with suppress(TransactionFailedError):
            yield from transaction(Check(token.path, token.version), without)
        return None
