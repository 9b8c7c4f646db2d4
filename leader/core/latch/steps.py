"""The requests of a latch to ZooKeeper, as generators (steps)."""

from __future__ import annotations

from typing import Protocol

from leader.core.latch import model as m
from leader.core.latch.model import Node, Place
from leader.core.lease import SessionView
from leader.errors import ZooKeeperUnavailableError
from leader.protocol import requests as r
from leader.protocol.paths import in_queue_order, new_latch_prefix

_BEFORE_SEQUENCE = "-latch-"

ClaimAnswer = m.Claimed | m.Postponed | m.Barred | m.Refused | m.LatchGone
ProofAnswer = m.Proven | m.Refused | m.LatchGone


class Claimant(Protocol):
    """The owner's part in the latch: the writes that take, keep and release the lock."""

    def stand_by(self, node: Node, place: Place) -> r.Steps[None]:
        """Read and watch what a later claim needs. Called at the end of each read of the queue."""

    def claim(self, node: Node) -> r.Steps[ClaimAnswer]:
        """Take the lock: commit a write that checks `node`, the oldest. After a hand-over none is needed."""

    def prove(self, node: Node) -> r.Steps[ProofAnswer]:
        """Commit a check of `node` and, while the lock is held, of all that the owner's term depends on."""

    def withdraw(self, path: str) -> r.Steps[bool]:
        """Delete `path`, the latch's node, in one transaction with the other writes that release the lock.

        False if nothing was deleted: then the latch deletes its node alone.
        """


class LatchSteps:
    """Creates, finds and deletes the nodes of one latch.

    A create whose reply was lost may have made a node. So each prefix is remembered until its node is known,
    and each node until it is known to be gone.
    """

    def __init__(self, session: SessionView, queue: str, data: bytes, claimant: Claimant) -> None:
        self._session, self._queue, self._data, self._claimant = session, queue, data, claimant
        self._doubtful: set[str] = set()  # prefixes of nodes that may exist
        self._node: Node | None = None

    def join(self) -> r.Steps[m.Joined]:
        """Find or create the latch's node, and delete what earlier tries may have left.

        A node counts only if this session owns it. ZooKeeper may delete a node of an older session at any
        moment, so such a node is deleted here (CURATOR-498, CURATOR-696).
        """
        session_id = self._connected()
        if self._node is not None:
            self._doubtful.add(_prefix(self._node.name))
            self._node = None
        name = yield from self._adopt(session_id)
        made = name is None
        if name is None:
            prefix = new_latch_prefix()
            self._doubtful.add(prefix)
            name = yield from self._create(prefix)
            self._doubtful.discard(prefix)
        if self._session.liveness.facts.session_id != session_id:
            self._doubtful.add(_prefix(name))
            raise ZooKeeperUnavailableError("the session changed while the latch node was created")
        self._node = Node(name, session_id)
        return m.Joined(self._node, made)

    def read_queue(self, node: Node) -> r.Steps[m.SawSelf | m.LatchGone]:
        """Find the latch's place in the queue. Watch its own node and the one before it, no other latch."""
        try:
            names = in_queue_order((yield from r.get_children(self._queue)))
        except r.NodeMissingError:
            return m.LatchGone()  # the whole queue was deleted; `join` creates it again (CURATOR-724)
        own = yield from r.exists(self._path(node.name), watch=True)
        if own is None or own.owner != node.session_id or node.name not in names:
            return m.LatchGone()
        position = names.index(node.name)
        while position > 0:
            before = names[position - 1]
            if (yield from r.exists(self._path(before), watch=True)) is not None:
                break
            # Deleted between the two reads. The next one ahead is in `names`: new latches join at the end.
            position -= 1
        place = Place(position, names[position - 1] if position else None)
        yield from self._claimant.stand_by(node, place)
        return m.SawSelf(place)

    def withdraw(self) -> r.Steps[m.Withdrawn]:
        """Delete every node of this latch. Returns only when none is left."""
        if self._node is not None:
            yield from self._delete(self._node)
            self._node = None
        if self._doubtful:
            yield from self._adopt(0)
        return m.Withdrawn()

    def _delete(self, node: Node) -> r.Steps[None]:
        path = self._path(node.name)
        ours = node.session_id == self._session.liveness.facts.session_id
        if not (ours and (yield from self._claimant.withdraw(path))):
            yield from r.delete_if_there(path)

    def _adopt(self, session_id: int) -> r.Steps[str | None]:
        """Returns the node that an earlier try made for this session; deletes all others of this latch."""
        owned: str | None = None
        if not self._doubtful:
            return None
        children = yield from r.children_if_there(self._queue)
        mine = [child for child in children if _prefix(child) in self._doubtful]
        for name in mine:
            stat = yield from r.exists(self._path(name))
            if stat is not None and stat.owner == session_id and owned is None:
                owned = name
            else:
                yield from r.delete_if_there(self._path(name))
        self._doubtful.clear()
        return owned

    def _create(self, prefix: str) -> r.Steps[str]:
        try:
            path = yield from r.create(self._path(prefix), self._data, ephemeral=True, sequential=True)
        except r.NodeMissingError:
            yield from r.ensure_path(self._queue)
            path = yield from r.create(self._path(prefix), self._data, ephemeral=True, sequential=True)
        return path.rpartition("/")[2]

    def _path(self, name: str) -> str:
        return f"{self._queue}/{name}"

    def _connected(self) -> int:
        facts = self._session.liveness.facts
        if not facts.is_connected or facts.session_id is None:
            raise ZooKeeperUnavailableError("there is no connection to ZooKeeper; waiting for one")
        return facts.session_id


class PlainClaimant:
    """The claimant of a `LeaderLatch`: its writes only check that the latch's node exists."""

    def __init__(self, queue: str) -> None:
        self._queue = queue

    def stand_by(self, node: Node, place: Place) -> r.Steps[None]:  # noqa: ARG002
        """Does nothing: a claim needs only the node."""
        yield from ()

    def claim(self, node: Node) -> r.Steps[ClaimAnswer]:
        """See `Claimant.claim`."""
        return m.Claimed() if (yield from self._there(node)) else m.LatchGone()

    def prove(self, node: Node) -> r.Steps[ProofAnswer]:
        """See `Claimant.prove`."""
        return m.Proven() if (yield from self._there(node)) else m.LatchGone()

    def withdraw(self, path: str) -> r.Steps[bool]:  # noqa: ARG002
        """Does nothing: the latch deletes its node alone."""
        yield from ()
        return False

    def _there(self, node: Node) -> r.Steps[bool]:
        """Checks with a transaction, not with a read: docs/election-internals.md, "What proves a session"."""
        try:
            yield from r.transaction(r.Check(f"{self._queue}/{node.name}"))
        except r.TransactionFailedError as exc:
            exc.raise_if_forbidden()
            return False
        return True


def _prefix(name: str) -> str:
    """The part of a node's name before the sequence number, which may itself begin with a minus."""
    return name[: name.rfind(_BEFORE_SEQUENCE) + len(_BEFORE_SEQUENCE)]
