"""How a participant takes, keeps and hands over the lock: transactions on the epoch that check its latch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from leader.core.latch import model as latch_m
from leader.core.latch.model import Node, Place
from leader.core.latch.steps import ClaimAnswer, ProofAnswer
from leader.core.participant.eligibility import Eligibility
from leader.errors import EpochWentBackwardsError, RecordError
from leader.protocol import requests as r
from leader.protocol.ephemeral import EphemeralNode
from leader.protocol.participant import Participant, decode_id, decode_member
from leader.protocol.paths import ElectionPaths, in_queue_order, is_node_name
from leader.protocol.terms import EpochRecord, FencingToken, Leadership, decode_epoch, encode_epoch

_CLAIM_TRIES = 3
_PROOFS_BEFORE_READ = 4  # a leader reads again after so many proofs which latch is behind its own


class EpochClaimant:
    """See `leader.core.latch.steps.Claimant`.

    While `hanging` names a call of guard or electable that hangs, no epoch is taken.
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
        """The term of the last claim; None when it is over."""
        self._last: Leadership | None = None  # newest own term; its epoch is never taken again
        self._highest = 0  # epoch that was read or taken
        self._awaited: tuple[str, Leadership] | None = None  # watched hand-over node; its term
        self._handed_over: Leadership | None = None  # the term that was handed over and not claimed yet
        self._successor: str | None = None  # the latch right behind this one: gets the hand-over
        self._proofs = 0

    # --- waiting ------------------------------------------------------------------------------------

    def stand_by(self, node: Node, place: Place) -> r.Steps[None]:
        """Read and watch what a later claim needs.

        The first two in the queue read and watch `control`, so that the claim itself need not read it. Each
        participant watches the member node of the one before it, which says when that one leads. Only then
        the next in line also watches the hand-over node: only a leader hands over, and a watch that never
        fires cannot be removed.
        """
        self._awaited = self._handed_over = None
        yield from self._eligibility.look_for_leader()
        if place.position <= 1:
            yield from self._eligibility.refresh()
        else:
            self._eligibility.forget_requests()
        leads = place.before is not None and (yield from self._watch_member(place.before))
        if leads and place.position == 1:
            yield from self._await_handover(node)

    def _watch_member(self, latch: str) -> r.Steps[bool]:
        """Watch the member node of the owner of `latch`. Returns True if the owner leads."""
        path = self._paths.latch(latch)
        try:
            data, _ = yield from r.get(path)
            participant_id = decode_id(data, path)
            if not is_node_name(participant_id):
                return False
            path = self._paths.member(participant_id)
            node = yield from r.watched(path)
            return node is not None and decode_member(node[0], path).leads
        except (r.RequestRefusedError, RecordError):
            return False  # the latch is gone, and its watch fires; or its id or member node cannot be read

    def _await_handover(self, node: Node) -> r.Steps[None]:
        try:
            stored, version = yield from self._read_epoch()
        except (EpochWentBackwardsError, RecordError):
            return  # the claim reads it again, and reports the error
        awaited = EpochRecord(stored.epoch + 1, node.name, stored.schema)
        notice = self._paths.handover(awaited.epoch, node.name)
        self._awaited = notice, self._term(awaited, version + 1)
        yield from r.exists(notice, watch=True)

    def note_handover(self, path: str) -> bool:
        """Returns True if the watch that fired on `path` announces a hand-over; keeps its term for the claim.

        The transaction of a hand-over raises the epoch for this latch and deletes the leader's latch. So the
        token is known without a read.
        """
        awaited = self._awaited
        if awaited is None or path != awaited[0]:
            return False
        self._awaited, self._handed_over = None, awaited[1]
        return True

    # --- taking and keeping the lock ------------------------------------------------------------------

    def claim(self, node: Node) -> r.Steps[ClaimAnswer]:
        """Take the epoch that the leader before this participant has raised for its latch, or raise it.

        A leader that steps down raises the epoch in the transaction that deletes its own latch. Otherwise the
        claim raises it by one, in one transaction with a check of this participant's latch.
        """
        objection = yield from self._eligibility.objection(node)
        if objection is not None:
            return objection
        handed_over, self._handed_over = self._handed_over, None
        hanging = self._hanging()
        if hanging is not None:
            return latch_m.Barred(hanging)
        latch = self._paths.latch(node.name)
        last_own_epoch = 0 if self._last is None else self._last.epoch
        if (
            handed_over is not None
            and handed_over.token.latch == latch
            and handed_over.epoch > last_own_epoch
        ):
            return self._took(handed_over, by_us=False)
        for _ in range(_CLAIM_TRIES):
            try:
                stored, version = yield from self._read_epoch()
            except (EpochWentBackwardsError, RecordError) as exc:
                return latch_m.Barred(str(exc))
            token = None if self._last is None else self._last.token
            if token is not None and token.latch == latch and version < token.version:
                # The epoch node was deleted and created again: with this latch, an old token could be valid.
                return latch_m.Barred(f"{self._paths.epoch} was replaced; this participant needs a new latch")
            if stored.latch == node.name and stored.epoch > last_own_epoch:
                return self._took(self._term(stored, version), by_us=False)
            raised = EpochRecord(stored.epoch + 1, node.name, stored.schema)
            raising = r.SetData(self._paths.epoch, encode_epoch(raised), version)
            try:
                _, stat = yield from r.transaction(r.Check(latch), raising)
            except r.TransactionFailedError as exc:
                exc.raise_if_forbidden()
                if exc.index == 0:
                    return latch_m.LatchGone()
                continue  # the epoch was changed after the read
            return self._took(self._term(raised, stat.version), by_us=True)
        return latch_m.Refused("the epoch kept changing while the claim tried to raise it")

    def _took(self, term: Leadership, *, by_us: bool) -> latch_m.Claimed:
        self._highest = term.epoch
        self._successor = None
        self._last = self.leadership = term
        return latch_m.Claimed(by_us)

    def prove(self, node: Node) -> r.Steps[ProofAnswer]:
        """Commit a check of the latch and, within a term, of its epoch.

        The transaction changes nothing, so it fires no watch. But like any transaction it passes the session
        check of ZooKeeper's leader, and a quorum. A read or a ping proves nothing: a follower that is cut off
        from ZooKeeper's leader still answers them.
        """
        latch = self._paths.latch(node.name)
        token = self.leadership.token if self.leadership is not None else None
        checks = [r.Check(latch)]
        if token is not None and token.latch == latch:
            checks.append(r.Check(token.path, token.version))
        try:
            yield from r.transaction(*checks)
        except r.TransactionFailedError as exc:
            exc.raise_if_forbidden()
            if exc.index == 0:
                return latch_m.LatchGone()
            self.leadership = None  # the term is over: the next proof checks the latch alone
            return latch_m.Refused(f"epoch {token.epoch if token else '?'} is over: another one has begun")
        self._proofs += 1
        if token is not None and self._proofs % _PROOFS_BEFORE_READ == 0:
            yield from self.find_successor(node)
        return latch_m.Proven()

    def forget(self, term: Leadership | None) -> None:
        """Note that `term` is over. Does nothing if a newer term has begun."""
        if self.leadership is term:
            self.leadership = self._successor = None

    # --- handing the lock over ------------------------------------------------------------------------

    def find_successor(self, node: Node) -> r.Steps[None]:
        """Read which latch is right behind this participant's: it gets a later hand-over."""
        names = in_queue_order((yield from r.children_if_there(self._paths.queue)))
        behind = names[names.index(node.name) + 1 :] if node.name in names else []
        self._successor = behind[0] if behind else None

    def withdraw(self, path: str) -> r.Steps[bool]:
        """Delete the latch at `path`.

        If possible, the same transaction raises the epoch for the next latch and deletes the leader node.
        """
        for operations, leader_node_goes in self._withdrawals(r.Delete(path)):
            try:
                yield from r.transaction(*operations)
            except r.TransactionFailedError:
                continue  # the queue, the epoch or the leader node has changed
            if leader_node_goes:
                self.leader_node.forget()
            return True
        return False

    def _withdrawals(self, deletion: r.Delete) -> Iterator[tuple[tuple[r.Operation, ...], bool]]:
        """Yields the transactions to try, in this order, each with True if it deletes the leader node.

        This participant may delete the leader node only while its epoch is the newest: after that, the node
        belongs to the next leader.
        """
        announced = self.leader_node.may_be_ours and self._last is not None
        leader_node = (r.Delete(self._paths.leader),) if announced else ()
        term, successor = self.leadership, self._successor
        ours = term is not None and term.token.latch == deletion.path
        if term is not None and ours and successor is not None and self._eligibility.open:
            raised = EpochRecord(term.epoch + 1, successor, term.schema)
            notice = self._paths.handover(raised.epoch, successor)
            # The hand-over node comes first: its watch fires before the successor's watch on this latch.
            fire_watch = (r.Create(notice), r.Delete(notice))
            raising = r.SetData(term.token.path, encode_epoch(raised), term.token.version)
            yield (
                (*fire_watch, raising, r.Check(self._paths.latch(successor)), deletion, *leader_node),
                announced,
            )
        if announced and self._last is not None:
            token = self._last.token
            yield (deletion, r.Check(token.path, token.version), *leader_node), announced

    # --- the epoch node -------------------------------------------------------------------------------

    def _term(self, record: EpochRecord, version: int) -> Leadership:
        token = FencingToken(self._paths.epoch, version, record.epoch, self._paths.latch(record.latch))
        return Leadership(record.epoch, token, self._participant, record.schema)

    def _read_epoch(self) -> r.Steps[tuple[EpochRecord, int]]:
        """Returns the epoch node and its version; creates the node in a new election.

        RecordError if it holds no epoch record, or one of an unknown schema; EpochWentBackwardsError if its
        epoch is below one that this process has read.
        """
        path = self._paths.epoch
        try:
            data, stat = yield from r.get(path)
        except r.NodeMissingError:
            with suppress(r.NodeExistsError):  # another participant created it first
                yield from r.create(path, encode_epoch(EpochRecord(0, schema=self._newest_schema)))
            data, stat = yield from r.get(path)
        record = decode_epoch(data, path)
        if record.schema > self._newest_schema:
            raise RecordError(
                f"{path} has schema {record.schema}, and this process knows {self._newest_schema}: a newer "
                f"release has raised it. Upgrade this process; until then it cannot lead"
            )
        if record.epoch < self._highest:
            raise EpochWentBackwardsError(path=path, stored=record.epoch, seen=self._highest)
        self._highest = record.epoch
        return record, stat.version
