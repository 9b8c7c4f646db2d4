"""What a participant shows to the others: its card, and, while it leads, its leader node."""

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
from leader.protocol.participant import Card, Participant, Rank, decode_card, encode_card
from leader.protocol.paths import ElectionPaths
from leader.protocol.requests import Check, SetData, Steps, TransactionFailedError, transaction
from leader.protocol.terms import LeaderInfo, Leadership, encode_leader

_log = structlog.get_logger(__name__)

_PATROL = 3
"""Session timeouts between two looks: nobody tells us when somebody touches our card."""


class CardKeeper:
    """Keeps our card in ZooKeeper as it is here. Driver only; `trouble` may be read by any thread.

    The card informs: only who yields to whom depends on it. So a failure to write it is tried again later,
    and is no trouble for the latch.
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
        self._node = EphemeralNode(paths.card(participant.id), self._refuse_another)
        self.card = Card(participant, 0, Rank(reserve=reserve, id=participant.id), nofailover)
        """As it should be."""
        self._written: Card | None = None  # as it is in ZooKeeper, as far as we know
        self.due_at: timedelta | None = clock()
        """When `keep` wants to be called, with a look."""
        self.trouble: str | None = None
        """Why our card cannot be there: another participant bears our id."""

    # --- what it says -------------------------------------------------------------------------------

    def ready(self, ready: bool, missing: int, missing_bytes: int, reasons: tuple[str, ...]) -> bool:
        """Note how ready we are; 0 things missing and not ready is possible.

        Returns:
            Whether we have become ready. To be ready as before is no news: what the guard said stands.
        """
        rank = replace(
            self.card.rank, unready=0 if ready else 2, missing=missing, missing_bytes=missing_bytes
        )
        if ready and rank == self.card.rank:
            return False
        became = ready and self.card.rank.unready != 0
        declined = self.card.declined and not became
        self.card = replace(self.card, rank=rank, reasons=reasons, declined=declined)
        return became

    def judged(self, ready: bool, reasons: tuple[str, ...]) -> None:
        """Note what the guard said."""
        self.card = replace(self.card, declined=not ready, reasons=() if ready else reasons)

    def moved(self, before: m.State, after: m.State) -> None:
        """Note whether we lead, and whether we can take the lock, now or after a back-off."""
        leads, is_out = isinstance(after, m.Leading), isinstance(after, m.Outside)
        if leads != self.card.leads:
            self.card = replace(self.card, leads=leads)
        again = isinstance(before, m.Leaving | m.BackingOff) and isinstance(after, m.InLine)
        if again or is_out or isinstance(before, m.Outside):
            self.card = replace(self.card, queues=not is_out)
            self.soon()

    def heard(self, event: m.LatchGained | m.LatchVetoed) -> None:
        """Note that the latch was gained, or vetoed. Until the next try the others need not wait for us."""
        queues = isinstance(event, m.LatchGained) or (event.at_once and self.card.queues)
        if queues != self.card.queues:
            self.card = replace(self.card, queues=queues)
            if not queues:
                self.soon()

    # --- keeping it ---------------------------------------------------------------------------------

    def soon(self) -> None:
        """The others shall know."""
        self.due_at = self._clock()

    def keep(self, *, look: bool = False) -> Steps[m.LatchVetoed | m.Poked | None]:
        """Write our card, if it has changed.

        Args:
            look: Whether to see what others may have done to it, though it has not changed.

        Returns:
            What we hear of it: that our id is in use, or that it is free by now.
        """
        facts = self._session.liveness.facts
        session_id = facts.session_id
        if not facts.is_connected or session_id is None:
            if self.due_at is None:  # for the driver, too: it heals the session when a timer runs out
                self._retry()
            return None
        if self.due_at is None:
            self.due_at = self._clock() + facts.timeout * _PATROL
        wanted = replace(self.card, session_id=session_id)
        before, self._written = self._written, None
        try:
            if look or wanted != before:
                yield from self._node.keep(encode_card(wanted), session_id, watch=False)
        except ParticipantIdInUseError as exc:
            self.trouble = str(exc)
            self._retry()
            return m.LatchVetoed(str(exc))
        except Exception as exc:  # noqa: BLE001 - it informs, no more: the latch has its own way through trouble
            _log.warning("card_not_written", error=str(exc))
            self._retry()
            return None
        self._written = wanted
        was_in_use, self.trouble = self.trouble is not None, None
        return m.Poked() if was_in_use else None  # there is no need to wait any longer

    def withdraw(self) -> Steps[None]:
        """Take our card away, if that can be done now."""
        facts = self._session.liveness.facts
        if not facts.is_connected:
            return
        try:
            yield from self._node.withdraw(facts.session_id)
        except Exception as exc:  # noqa: BLE001 - nothing is left to do about it
            _log.info("card_left_to_session_end", error=str(exc))

    def _refuse_another(self, data: bytes) -> None:
        """Replace what an older session of ours left; refuse to replace what is another's."""
        try:
            holder = decode_card(data, self._node.path).participant
        except RecordError:
            return  # no card: whoever put it there, it is in the way
        if holder != self.card.participant:
            raise ParticipantIdInUseError(
                path=self._node.path, holder=f"{holder.host}:{holder.port}", boot_id=holder.boot_id
            )

    def _retry(self) -> None:
        self.due_at = self._clock() + self._session.liveness.facts.timeout / 4


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
