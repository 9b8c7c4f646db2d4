"""What a participant commits to take and to keep the lock: a higher epoch, checked with its latch node."""

from __future__ import annotations

from contextlib import suppress

from leader.errors import EpochWentBackwardsError, RecordError
from leader.fencing import FencingToken
from leader.latch import events as ev
from leader.latch.ports import ClaimAnswer, ProofAnswer
from leader.latch.states import Node
from leader.office.control import Eligibility
from leader.protocol.paths import ElectionPaths
from leader.protocol.records import Leadership, Participant, decode_epoch, decode_id, encode_epoch
from leader.protocol.requests import (
    Check,
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
    transaction,
)

_CLAIM_TRIES = 3


class EpochClaimant:
    """See `leader.latch.ports.Claimant`. `leadership` is the term of the last claim, None before it."""

    def __init__(self, paths: ElectionPaths, participant: Participant, eligibility: Eligibility) -> None:
        self._paths, self._participant, self._eligibility = paths, participant, eligibility
        self._highest = 0
        self._known: tuple[int, int] | None = None  # epoch and version, as last read
        self.leadership: Leadership | None = None
        self.announced = False
        """Whether a leader node of ours may be there."""

    def stand_by(self, node: Node, position: int, before: str | None) -> Steps[None]:  # noqa: ARG002
        """Read the epoch and what operators want, and watch both, so that a claim is a single write.

        Who stands further back watches the card of the one before it instead: when that one leads, its card
        says so, and we are next in line.
        """
        if position > 1 and before is not None:
            yield from self._watch_card(before)
            return
        yield from self._eligibility.refresh()
        try:
            self._known = yield from self._read_epoch()
        except (EpochWentBackwardsError, RecordError):
            self._known = None  # the claim will find it again, and say so

    def claim(self, node: Node) -> Steps[ClaimAnswer]:
        """Raise the epoch by one, in one transaction with a check that our latch is there."""
        objection = yield from self._eligibility.objection(node)
        if objection is not None:
            return objection
        for _ in range(_CLAIM_TRIES):
            try:
                epoch, version = self._known or (yield from self._read_epoch())
            except (EpochWentBackwardsError, RecordError) as exc:
                return ev.Barred(str(exc))
            latch = self._paths.latch(node.name)
            raised = SetData(self._paths.epoch, encode_epoch(epoch + 1), version)
            self._known = None
            try:
                _, stat = yield from transaction(Check(latch), raised)
            except TransactionFailedError as exc:
                if exc.index == 0:
                    return ev.LatchGone()
                continue  # somebody raised it since we read it
            self._highest = epoch + 1
            token = FencingToken(self._paths.epoch, stat.version, epoch + 1, latch)
            self.leadership = Leadership(epoch + 1, token, self._participant)
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
            if exc.index == 0:
                return ev.LatchGone()
            self.leadership = None  # over: the next proof is that of a candidate
            return ev.Refused(f"epoch {token.epoch if token else '?'} is over: another one has begun")
        return ev.Proven()

    def farewell(self, node: Node) -> tuple[Operation, ...]:  # noqa: ARG002 - the port's
        """Take the leader node along."""
        return (Delete(self._paths.leader),) if self.announced else ()

    def forget(self) -> None:
        """The term of the last claim is over."""
        self.leadership = None

    def _watch_card(self, latch: str) -> Steps[None]:
        path = self._paths.latch(latch)
        try:
            data, _ = yield from get(path)
            yield from exists(self._paths.card(decode_id(data, path)), watch=True)
        except (NodeMissingError, RecordError):
            return  # it left, and we are told; or it is a stranger without a card

    def _read_epoch(self) -> Steps[tuple[int, int]]:
        """Epoch and znode version; makes the node in a new election."""
        path = self._paths.epoch
        try:
            data, stat = yield from get(path, watch=True)
        except NodeMissingError:
            with suppress(NodeExistsError):  # made by another meanwhile
                yield from create(path, encode_epoch(0))
            data, stat = yield from get(path, watch=True)
        epoch = decode_epoch(data, path)
        if epoch < self._highest:
            raise EpochWentBackwardsError(path=path, stored=epoch, seen=self._highest)
        self._highest = epoch
        return epoch, stat.version
