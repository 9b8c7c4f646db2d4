"""What a participant commits to take, keep and hand over the lock: an epoch, checked with its latch node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from leader.core.latch import model as latch_m
from leader.core.latch.model import Node, Place
from leader.core.latch.steps import ClaimAnswer, ProofAnswer
from leader.core.participant.eligibility import Eligibility
from leader.errors import EpochWentBackwardsError, RecordError
from leader.protocol.ephemeral import EphemeralNode
from leader.protocol.participant import Participant, decode_card, decode_id
from leader.protocol.paths import ElectionPaths, in_queue_order
from leader.protocol.requests import (
    Check,
    Create,
    Delete,
    NodeExistsError,
    NodeMissingError,
    Operation,
    SetData,
    Steps,
    TransactionFailedError,
    create,
    exists,
    get,
    get_children,
    transaction,
    watched,
)
from leader.protocol.terms import EpochRecord, FencingToken, Leadership, decode_epoch, encode_epoch

_CLAIM_TRIES = 3
_PROOFS_BEFORE_LOOK = 4


class EpochClaimant:
    """See `leader.core.latch.steps.Claimant`.

    Args:
        newest_schema: See `ElectionConfig.newest_schema`.
        hanging: Says which call of guard or electable hangs, if one does: then no epoch is spent.
    """

    def __init__(
        self,
        paths: ElectionPaths,
        participant: Participant,
        eligibility: Eligibility,
        newest_schema: int,
        hanging: Callable[[], str | None],
    ) -> None:
        self._paths, self._participant, self._eligibility = paths, participant, eligibility
        self._newest_schema, self._hanging = newest_schema, hanging
        self.leader_node = EphemeralNode(paths.leader)
        self.leadership: Leadership | None = None
        """The term of the last claim, until it is over."""
        self._last: Leadership | None = None  # the newest term that was ours; its epoch is never taken again
        self._highest = 0  # epoch that was seen
        self._awaited: tuple[str, Leadership] | None = None  # the hand-over's notice; the term it gives us
        self._handed_over: Leadership | None = None  # what it has given us
        self._successor: str | None = None  # the latch right behind ours, to which we hand over
        self._proofs = 0

    # --- waiting ------------------------------------------------------------------------------------

    def stand_by(self, node: Node, place: Place) -> Steps[None]:
        """Read what operators want, and watch it, so that a claim need not: the first two alone.

        Everybody watches the card of the one before it: when that one leads, its card says so, and we are
        next in line. Only a leader hands over, so only then do we wait for that: a watch that never fires
        could not be taken back.
        """
        self._awaited = self._handed_over = None
        yield from self._eligibility.look_for_leader()
        if place.position <= 1:
            yield from self._eligibility.refresh()
        leads = place.before is not None and (yield from self._watch_card(place.before))
        if leads and place.position == 1:
            yield from self._await_handover(node)

    def _watch_card(self, latch: str) -> Steps[bool]:
        """Returns whether the owner of `latch` leads, as its card says."""
        path = self._paths.latch(latch)
        try:
            data, _ = yield from get(path)
            card = self._paths.card(decode_id(data, path))
            found = yield from watched(card)
            return found is not None and decode_card(found[0], card).leads
        except (NodeMissingError, RecordError):
            return False  # it left, and we are told; or it is a stranger without a card

    def _await_handover(self, node: Node) -> Steps[None]:
        try:
            stands, version = yield from self._read_epoch()
        except (EpochWentBackwardsError, RecordError):
            return  # the claim will find it again, and say so
        awaited = EpochRecord(stands.epoch + 1, node.name, stands.schema)
        notice = self._paths.handover(awaited.epoch, node.name)
        self._awaited = notice, self._term(awaited, version + 1)
        yield from exists(notice, watch=True)

    def heard(self, path: str) -> bool:
        """Whether a watch that fired says that the one before us has handed over to us.

        It did so in one transaction: the epoch is raised for us, and its latch is gone. So we know the token
        without a read.
        """
        awaited = self._awaited
        if awaited is None or path != awaited[0]:
            return False
        self._awaited, self._handed_over = None, awaited[1]
        return True

    # --- taking and keeping the lock ------------------------------------------------------------------

    def claim(self, node: Node) -> Steps[ClaimAnswer]:
        """Take the epoch that the leader before us has raised for our latch, or raise it.

        A leader that steps down raises it in the transaction that deletes its own latch. Else we raise it by
        one, in one transaction with a check that our latch is there.
        """
        objection = yield from self._eligibility.objection(node)
        if objection is not None:
            return objection
        handed_over, self._handed_over = self._handed_over, None
        hanging = self._hanging()
        if hanging is not None:
            return latch_m.Barred(hanging)
        latch = self._paths.latch(node.name)
        spent = 0 if self._last is None else self._last.epoch
        if handed_over is not None and handed_over.token.latch == latch and handed_over.epoch > spent:
            return self._took(handed_over, by_us=False)
        for _ in range(_CLAIM_TRIES):
            try:
                stands, version = yield from self._read_epoch()
            except (EpochWentBackwardsError, RecordError) as exc:
                return latch_m.Barred(str(exc))
            token = None if self._last is None else self._last.token
            if token is not None and token.latch == latch and version < token.version:
                # Somebody put another node in its place: with this latch an old token could be valid again.
                return latch_m.Barred(f"{self._paths.epoch} was replaced; we come back with a new latch")
            if stands.latch == node.name and stands.epoch > spent:
                return self._took(self._term(stands, version), by_us=False)
            raised = EpochRecord(stands.epoch + 1, node.name, stands.schema)
            raising = SetData(self._paths.epoch, encode_epoch(raised), version)
            try:
                _, stat = yield from transaction(Check(latch), raising)
            except TransactionFailedError as exc:
                exc.raise_if_forbidden()
                if exc.index == 0:
                    return latch_m.LatchGone()
                continue  # somebody raised it since we read it
            return self._took(self._term(raised, stat.version), by_us=True)
        return latch_m.Refused("the epoch kept changing while we raised it")

    def _took(self, term: Leadership, *, by_us: bool) -> latch_m.Claimed:
        self._highest = term.epoch
        self._successor = None
        self._last = self.leadership = term
        return latch_m.Claimed(by_us)

    def prove(self, node: Node) -> Steps[ProofAnswer]:
        """Commit a check of our latch, and of our epoch once we have one.

        It changes nothing, so it wakes no watch; but like any transaction it passes the session check of
        ZooKeeper's leader and a quorum. A read or a ping proves nothing: a follower that is cut off from its
        leader still answers them.
        """
        latch = self._paths.latch(node.name)
        token = self.leadership.token if self.leadership is not None else None
        checks = [Check(latch)]
        if token is not None and token.latch == latch:
            checks.append(Check(token.path, token.version))
        try:
            yield from transaction(*checks)
        except TransactionFailedError as exc:
            exc.raise_if_forbidden()
            if exc.index == 0:
                return latch_m.LatchGone()
            self.leadership = None  # over: the next proof is that of a candidate
            return latch_m.Refused(f"epoch {token.epoch if token else '?'} is over: another one has begun")
        self._proofs += 1
        if token is not None and self._proofs % _PROOFS_BEFORE_LOOK == 0:
            yield from self.find_successor(node)
        return latch_m.Proven()

    def forget(self, term: Leadership | None) -> None:
        """`term` is over; another may have begun since."""
        if self.leadership is term:
            self.leadership = self._successor = None

    # --- handing it over ------------------------------------------------------------------------------

    def find_successor(self, node: Node) -> Steps[None]:
        """Look which latch is right behind ours, for the moment at which we step down."""
        try:
            names = [entry.name for entry in in_queue_order((yield from get_children(self._paths.queue)))]
        except NodeMissingError:
            names = []
        behind = names[names.index(node.name) + 1 :] if node.name in names else []
        self._successor = behind[0] if behind else None

    def withdraw(self, path: str) -> Steps[bool]:
        """Delete our latch; raise the epoch for the latch behind it, and delete the leader node with it."""
        for operations, leader_node_goes in self._withdrawals(Delete(path)):
            try:
                yield from transaction(*operations)
            except TransactionFailedError:
                continue  # things are not as we thought
            if leader_node_goes:
                self.leader_node.forget()
            return True
        return False

    def _withdrawals(self, deletion: Delete) -> Iterator[tuple[tuple[Operation, ...], bool]]:
        """What to try, in this order; and whether the leader node goes with it.

        The leader node is ours only as long as nobody has raised the epoch since.
        """
        announced = self.leader_node.may_be_ours and self._last is not None
        leader_node = (Delete(self._paths.leader),) if announced else ()
        term, successor = self.leadership, self._successor
        ours = term is not None and term.token.latch == deletion.path
        if term is not None and ours and successor is not None and self._eligibility.open:
            raised = EpochRecord(term.epoch + 1, successor, term.schema)
            notice = self._paths.handover(raised.epoch, successor)
            # The notice first: who waits for us hears of it before it hears that our latch is gone.
            told = (Create(notice), Delete(notice))
            raising = SetData(term.token.path, encode_epoch(raised), term.token.version)
            yield (*told, raising, Check(self._paths.latch(successor)), deletion, *leader_node), announced
        if announced and self._last is not None:
            token = self._last.token
            yield (deletion, Check(token.path, token.version), *leader_node), announced

    # --- the epoch node -------------------------------------------------------------------------------

    def _term(self, record: EpochRecord, version: int) -> Leadership:
        token = FencingToken(self._paths.epoch, version, record.epoch, self._paths.latch(record.latch))
        return Leadership(record.epoch, token, self._participant, record.schema)

    def _read_epoch(self) -> Steps[tuple[EpochRecord, int]]:
        """The epoch node and its version; makes it in a new election.

        Raises:
            RecordError: It is not ours, or of a schema that we do not know.
            EpochWentBackwardsError: Its number is too low.
        """
        path = self._paths.epoch
        try:
            data, stat = yield from get(path)
        except NodeMissingError:
            with suppress(NodeExistsError):  # made by another meanwhile
                yield from create(path, encode_epoch(EpochRecord(0, schema=self._newest_schema)))
            data, stat = yield from get(path)
        record = decode_epoch(data, path)
        if record.schema > self._newest_schema:
            raise RecordError(
                f"{path} has schema {record.schema}, and this process knows {self._newest_schema}: a newer "
                f"release has raised it. Upgrade this process; until then it cannot take the lead"
            )
        if record.epoch < self._highest:
            raise EpochWentBackwardsError(path=path, stored=record.epoch, seen=self._highest)
        self._highest = record.epoch
        return record, stat.version
