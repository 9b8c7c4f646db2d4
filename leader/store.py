"""What the elector does in ZooKeeper. Each method is one answered effect; elector thread only."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import structlog
from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError
from kazoo.protocol.states import WatchedEvent, ZnodeStat

from leader import events as ev
from leader.errors import (
    EpochWentBackwardsError,
    FencedOutError,
    RecordError,
    TransactionRefusedError,
    ZooKeeperUnavailableError,
)
from leader.fencing import FencingToken, fenced_transaction, first_failure
from leader.protocol.paths import ElectionPaths, in_queue_order
from leader.protocol.records import (
    LeaderInfo,
    Leadership,
    Participant,
    decode_epoch,
    decode_leader,
    encode_epoch,
    encode_leader,
    encode_participant,
)
from leader.states import Latch
from leader.zookeeper.session import ZooKeeperSession

_log = structlog.get_logger(__name__)

_WRITE_TRIES = 3


class ElectionStore:
    """The nodes of one participant. Methods raise ZooKeeperUnavailableError when there is no answer.

    Args:
        nudge: Called on kazoo's watch thread when anything we looked at changed; must only enqueue.
    """

    def __init__(
        self, session: ZooKeeperSession, root: str, participant: Participant, nudge: Callable[[], None]
    ) -> None:
        self._session, self._participant, self._nudge = session, participant, nudge
        self.paths = ElectionPaths(root)
        self._guids: set[str] = set()  # of every latch that may exist; forgotten when it is known to be gone
        self._guid: str | None = None  # of the latch being made now
        self._highest_epoch = 0
        self.generation = -1
        """The connection on which we last began to look; leadership must not outlive it."""

    def join(self) -> ev.Joined:
        """Find or make our latch node.

        An earlier try may have made it and lost the reply. It is ours only if this session owns it: one
        of an older session would vanish under our feet, so it is deleted.
        """
        session_id = self._connected_session()
        self._call("ensure_path_async", self.paths.queue)
        self._guid = self._guid or uuid.uuid4().hex
        self._guids.add(self._guid)
        found: str | None = None
        for name, owner in self._own_nodes():
            if owner == session_id and name.startswith(self._guid):
                found = name
            else:
                self._delete(self.paths.latch(name))
        if found is None:
            data = encode_participant(self._participant, session_id)
            path = self._call(
                "create_async", self.paths.new_latch(self._guid), data, ephemeral=True, sequence=True
            )
            found = str(path).rpartition("/")[2]
        self._guids = {self._guid}
        self._guid = None
        return ev.Joined(Latch(found, session_id))

    def look(self, latch: Latch) -> ev.SawSelf | ev.LatchGone:
        """Find our place; watch our own node and the one before us, nobody else's."""
        self.generation = self._session.generation
        while True:
            try:
                queue = in_queue_order(self._call("get_children_async", self.paths.queue))
            except NoNodeError:
                return ev.LatchGone()  # the whole queue was deleted; joining makes it again
            names = [entry.name for entry in queue]
            own = self._call("exists_async", self.paths.latch(latch.name), watch=self._on_watch)
            if own is None or own.ephemeralOwner != self._session.session_id or latch.name not in names:
                return ev.LatchGone()
            position = names.index(latch.name)
            if position == 0:
                return ev.SawSelf(0)
            before = self.paths.latch(names[position - 1])
            if self._call("exists_async", before, watch=self._on_watch) is not None:
                return ev.SawSelf(position)
            # Our predecessor left between the two reads: read again, we may be the oldest now.

    def take_epoch(self, latch: Latch) -> ev.EpochTaken | ev.Refused | ev.LatchGone | ev.Barred:
        """Raise the epoch by one, in one transaction with a check that our latch exists."""
        try:
            epoch, version = self._read_epoch()
        except (EpochWentBackwardsError, RecordError) as exc:
            return ev.Barred(str(exc))
        transaction = self._session.client.transaction()
        transaction.check(self.paths.latch(latch.name), -1)
        transaction.set_data(self.paths.epoch, encode_epoch(epoch + 1), version)
        results = self._commit(transaction)
        failed = first_failure(results)
        if failed is not None:
            index, error = failed
            if index == 0 and isinstance(error, NoNodeError):
                return ev.LatchGone()
            if isinstance(error, BadVersionError | NoNodeError):
                return ev.Refused("the epoch changed while we raised it")
            raise error
        self._highest_epoch = epoch + 1
        token = FencingToken(self.paths.epoch, results[1].version, epoch + 1)
        return ev.EpochTaken(Leadership(epoch + 1, token, self._participant))

    def prove(
        self, latch: Latch, leadership: Leadership, timeout: timedelta | None = None
    ) -> ev.Proven | ev.Refused | ev.LatchGone:
        """Commit a transaction that checks epoch and latch.

        It changes nothing, so it wakes no watch; but like any transaction it passes the session check of
        ZooKeeper's leader and a quorum. A read or a ping proves nothing: a follower that is cut off from its
        leader still answers them.
        """
        refused = self._fenced(latch, leadership, lambda _: None, timeout)
        return refused or ev.Proven()

    def announce(self, latch: Latch, leadership: Leadership) -> ev.Announced | ev.Refused | ev.LatchGone:
        """Write the leader node, replacing whatever is there."""
        refused = self._write_leader_node(latch, leadership)
        if refused is None and self._session.generation != self.generation:
            raise ZooKeeperUnavailableError("the connection broke while we took office; look again")
        return refused or ev.Announced()

    def keep_announced(self, latch: Latch, leadership: Leadership) -> ev.Refused | ev.LatchGone | None:
        """Correct the leader node if somebody overwrote or deleted it, and watch it."""
        try:
            data, stat = self._call("get_async", self.paths.leader, watch=self._on_watch)
        except NoNodeError:
            return self._write_leader_node(latch, leadership)
        if stat.ephemeralOwner == latch.session_id and data == self._leader_data(latch, leadership):
            return None
        _log.warning("leader_node_corrected", epoch=leadership.epoch)
        return self._write_leader_node(latch, leadership)

    def withdraw(self) -> ev.Withdrawn:
        """Delete every node of ours; return only when none is left."""
        session_id = self._connected_session()
        stat = self._call("exists_async", self.paths.leader)
        if stat is not None and stat.ephemeralOwner == session_id and self._is_own_leader_node():
            self._delete(self.paths.leader)
        for name, _owner in self._own_nodes():
            self._delete(self.paths.latch(name))
        self._guids.clear()
        self._guid = None
        return ev.Withdrawn()

    def _is_own_leader_node(self) -> bool:
        # Two participants may share one session, so the owner alone does not say whose node it is.
        try:
            data, _stat = self._call("get_async", self.paths.leader)
            return decode_leader(data, self.paths.leader).participant == self._participant
        except (NoNodeError, RecordError):
            return False

    def _own_nodes(self) -> list[tuple[str, int]]:
        """Names and owners of all latches that carry one of our GUIDs."""
        try:
            queue = in_queue_order(self._call("get_children_async", self.paths.queue))
        except NoNodeError:
            return []
        mine = [entry.name for entry in queue if entry.guid in self._guids]
        stats = [(name, self._call("exists_async", self.paths.latch(name))) for name in mine]
        return [(name, stat.ephemeralOwner) for name, stat in stats if stat is not None]

    def _read_epoch(self) -> tuple[int, int]:
        """Epoch and znode version; makes the node in a new election."""
        path = self.paths.epoch
        try:
            data, stat = self._call("get_async", path)
        except NoNodeError:
            try:
                self._call("create_async", path, encode_epoch(0))
            except NodeExistsError:
                _log.debug("epoch_made_by_another")
            data, stat = self._call("get_async", path)
        epoch = decode_epoch(data, path)
        if epoch < self._highest_epoch:
            raise EpochWentBackwardsError(path=path, stored=epoch, seen=self._highest_epoch)
        self._highest_epoch = epoch
        return epoch, stat.version

    def _write_leader_node(self, latch: Latch, leadership: Leadership) -> ev.Refused | ev.LatchGone | None:
        path, data = self.paths.leader, self._leader_data(latch, leadership)
        for _ in range(_WRITE_TRIES):
            stale = self._call("exists_async", path)

            def build(transaction: TransactionRequest, stale: ZnodeStat | None = stale) -> None:
                if stale is not None:
                    transaction.delete(path, stale.version)
                transaction.create(path, data, ephemeral=True)

            try:
                refused = self._fenced(latch, leadership, build)
            except TransactionRefusedError as exc:
                _log.warning("leader_node_contended", epoch=leadership.epoch, error=str(exc))
                continue
            if refused is None:
                self._call("exists_async", path, watch=self._on_watch)
            return refused
        return ev.Refused(f"somebody keeps changing {path}, {_WRITE_TRIES} times while we wrote it")

    def _fenced(
        self,
        latch: Latch,
        leadership: Leadership,
        build: Callable[[TransactionRequest], None],
        timeout: timedelta | None = None,
    ) -> ev.Refused | ev.LatchGone | None:
        def with_latch(transaction: TransactionRequest) -> None:
            transaction.check(self.paths.latch(latch.name), -1)
            build(transaction)

        self._connected_session()
        limit = timeout or self._limit()
        try:
            fenced_transaction(self._session, leadership.token, with_latch, timeout=limit)
        except FencedOutError as exc:
            return ev.Refused(str(exc))
        except TransactionRefusedError as exc:
            if exc.index == 0 and isinstance(exc.cause, NoNodeError):
                return ev.LatchGone()
            raise
        return None

    def _leader_data(self, latch: Latch, leadership: Leadership) -> bytes:
        return encode_leader(LeaderInfo(self._participant, leadership.epoch, latch.session_id))

    def _delete(self, path: str) -> None:
        try:
            self._call("delete_async", path)
        except NoNodeError:
            return  # gone already, which is what we want

    def _commit(self, transaction: TransactionRequest) -> list[Any]:
        self._connected_session()
        results: list[Any] = self._session.call(transaction.commit_async, timeout=self._limit())
        return results

    def _call(self, method: str, *args: Any, **kw: Any) -> Any:
        self._connected_session()
        return self._session.call(getattr(self._session.client, method), *args, timeout=self._limit(), **kw)

    def _connected_session(self) -> int:
        """Fail at once while there is no connection: waiting for one is the state machine's business."""
        session_id = self._session.session_id
        if not self._session.is_connected or session_id is None:
            self._session.heal()
            raise ZooKeeperUnavailableError("there is no connection to ZooKeeper; waiting for one")
        return session_id

    def _limit(self) -> timedelta:
        """A third of the session: a later answer would be of no use."""
        return min(self._session.config.call_timeout, self._session.negotiated_timeout / 3)

    def _on_watch(self, _event: WatchedEvent) -> None:
        """Kazoo's watch thread: only enqueue. It fires on a broken connection too; so just look again."""
        self._nudge()
