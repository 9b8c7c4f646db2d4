"""What a participant commits to take and to keep the lock: a higher epoch, checked with its latch node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from leader.core.latch import events as ev
from leader.core.latch.ports import ClaimAnswer, ProofAnswer
from leader.core.latch.states import Node
from leader.core.participant.control import Eligibility
from leader.errors import EpochWentBackwardsError, RecordError
from leader.protocol.card import decode_card
from leader.protocol.fencing import FencingToken
from leader.protocol.participant import Participant, decode_id
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
from leader.protocol.terms import EpochRecord, Leadership, decode_epoch, encode_epoch

_CLAIM_TRIES = 3
_PROOFS_BEFORE_LOOK = 4


class EpochClaimant:
    """See `leader.core.latch.ports.Claimant`. `leadership` is the term of the last claim, None before it.

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
        self._highest = 0
        self._awaited: Leadership | None = None  # what a hand-over by the one before us would give us
        self._handover: Leadership | None = None  # what it has given us
        self._spent = 0  # the last epoch that was ours: never taken twice
        self._token: FencingToken | None = None  # of that epoch
        # What our hand-over begins with: it raises the epoch for the latch right behind ours.
        self._handover_operations: tuple[Operation, ...] = ()
        self._proofs = 0
        self.leadership: Leadership | None = None
        self.announced = False
        """Whether a leader node of ours may be there."""
        self.took_it_along = False
        """Whether our withdrawal has deleted that node, if a withdrawal was the last that we heard of."""

    def stand_by(self, node: Node, position: int, before: str | None) -> Steps[None]:
        """Read what operators want, and watch it, so that a claim need not: the first two alone.

        Everybody watches the card of the one before it: when that one leads, its card says so, and we are
        next in line. Only who leads hands over, so only then do we wait for that: a watch that never fires
        could not be taken back.
        """
        self._awaited = self._handover = None
        yield from self._eligibility.look_for_leader()
        if position <= 1:
            yield from self._eligibility.refresh()
        leads = before is not None and (yield from self._watch_card(before))
        if leads and position == 1:
            yield from self._await_handover(node)

    def heard(self, path: str) -> bool:
        """Whether a watch that fired says that the one before us has handed over to us.

        It did so in one transaction: the epoch is raised for us, and its latch is gone. So we know the token
        without a read.
        """
        awaited = self._awaited
        if awaited is None or path != self._paths.handover(awaited.epoch, _name(awaited.token)):
            return False
        self._awaited, self._handover = None, awaited
        return True

    def claim(self, node: Node) -> Steps[ClaimAnswer]:
        """Raise the epoch by one, in one transaction with a check that our latch is there.

        A leader that steps down has done so for us, in the transaction that deleted its own latch: then the
        epoch bears the name of our latch, and a read is enough.
        """
        objection = yield from self._eligibility.objection(node)
        if objection is not None:
            return objection
        latch = self._paths.latch(node.name)
        handover, self._handover = self._handover, None
        hanging = self._hanging()
        if hanging is not None:
            return ev.Barred(hanging)
        if handover is not None and handover.token.latch == latch and handover.epoch > self._spent:
            self._took(handover)
            return ev.Claimed(by_us=False)
        for _ in range(_CLAIM_TRIES):
            try:
                stands, version = yield from self._read_epoch()
            except (EpochWentBackwardsError, RecordError) as exc:
                return ev.Barred(str(exc))
            if self._token is not None and self._token.latch == latch and version < self._token.version:
                # Somebody put another node in its place: with this latch an old token could be valid again.
                return ev.Barred(f"{self._paths.epoch} was replaced; we come back with a new latch")
            if stands.latch == node.name and stands.epoch > self._spent:
                self._took(self._term(stands, version, latch))
                return ev.Claimed(by_us=False)
            raised = EpochRecord(stands.epoch + 1, node.name, stands.schema)
            raising = SetData(self._paths.epoch, encode_epoch(raised), version)
            try:
                _, stat = yield from transaction(Check(latch), raising)
            except TransactionFailedError as exc:
                exc.raise_if_forbidden()
                if exc.index == 0:
                    return ev.LatchGone()
                continue  # somebody raised it since we read it
            self._took(self._term(raised, stat.version, latch))
            return ev.Claimed()
        return ev.Refused("the epoch kept changing while we raised it")

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
                return ev.LatchGone()
            self.leadership = None  # over: the next proof is that of a candidate
            return ev.Refused(f"epoch {token.epoch if token else '?'} is over: another one has begun")
        self._proofs += 1
        if token is not None and self._proofs % _PROOFS_BEFORE_LOOK == 0:
            yield from self.find_successor(node)
        return ev.Proven()

    def find_successor(self, node: Node) -> Steps[None]:
        """Prepare the hand-over to the latch right behind ours, for the moment at which we step down."""
        try:
            names = [entry.name for entry in in_queue_order((yield from get_children(self._paths.queue)))]
        except NodeMissingError:
            names = []
        behind = names[names.index(node.name) + 1 :] if node.name in names else []
        self._handover_operations = self._handover_to(behind[0], node) if behind else ()

    def withdrawal(self, deletion: Delete) -> Iterator[tuple[Operation, ...]]:
        """Raise the epoch for who stands behind us, and take the leader node along.

        The leader node is ours only as long as nobody has raised the epoch since.
        """
        leader = self._leader_node()
        if self._handover_operations and self.leadership is not None and self._eligibility.open:
            self.took_it_along = bool(leader)
            yield (*self._handover_operations, deletion, *leader)
        if leader and self._token is not None:
            self.took_it_along = True
            yield deletion, Check(self._token.path, self._token.version), *leader
        self.took_it_along = False  # refused

    def _leader_node(self) -> tuple[Operation, ...]:
        return (Delete(self._paths.leader),) if self.announced and self._token is not None else ()

    def _handover_to(self, successor: str, node: Node) -> tuple[Operation, ...]:
        term = self.leadership
        if term is None or term.token.latch != self._paths.latch(node.name):
            return ()
        record = EpochRecord(term.epoch + 1, successor, term.schema)
        raised = SetData(term.token.path, encode_epoch(record), term.token.version)
        notice = self._paths.handover(term.epoch + 1, successor)
        # The notice first: who waits for us hears of it before it hears that our latch is gone.
        return (Create(notice), Delete(notice), raised, Check(self._paths.latch(successor)))

    def forget(self, term: Leadership | None) -> None:
        """`term` is over; another may have begun since."""
        if self.leadership is term:
            self.leadership = None
            self._handover_operations = ()

    def _took(self, term: Leadership) -> None:
        self._highest = self._spent = term.epoch
        self._handover_operations = ()
        self._token, self.leadership = term.token, term

    def _term(self, record: EpochRecord, version: int, latch: str) -> Leadership:
        token = FencingToken(self._paths.epoch, version, record.epoch, latch)
        return Leadership(record.epoch, token, self._participant, record.schema)

    def _await_handover(self, node: Node) -> Steps[None]:
        try:
            stands, version = yield from self._read_epoch()
        except (EpochWentBackwardsError, RecordError):
            return  # the claim will find it again, and say so
        latch = self._paths.latch(node.name)
        awaited = EpochRecord(stands.epoch + 1, node.name, stands.schema)
        self._awaited = self._term(awaited, version + 1, latch)
        yield from exists(self._paths.handover(awaited.epoch, node.name), watch=True)

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


def _name(token: FencingToken) -> str:
    return (token.latch or "").rpartition("/")[2]
