"""What a latch asks of ZooKeeper, request by request."""

from __future__ import annotations

from collections.abc import Iterator

from leader.core.latch import events as ev
from leader.core.latch.ports import ClaimAnswer, Claimant, ProofAnswer, SessionView
from leader.core.latch.states import Node, Place
from leader.errors import ZooKeeperUnavailableError
from leader.protocol.paths import in_queue_order, new_latch_prefix
from leader.protocol.requests import (
    Check,
    Delete,
    NodeMissingError,
    Operation,
    Steps,
    TransactionFailedError,
    create,
    delete_if_there,
    ensure_path,
    exists,
    get_children,
    transaction,
)

_BEFORE_SEQUENCE = "-latch-"


class LatchSteps:
    """The nodes of one latch.

    A create whose reply was lost may have made a node, so each prefix is remembered until its node is known,
    and each node until it is known to be gone.
    """

    def __init__(self, session: SessionView, queue: str, data: bytes, claimant: Claimant) -> None:
        self._session, self._queue, self._data, self._claimant = session, queue, data, claimant
        self._doubtful: set[str] = set()  # prefixes of nodes that may exist
        self._node: Node | None = None

    def join(self) -> Steps[ev.Joined]:
        """Make our node, after clearing up what earlier tries may have left.

        A node of ours counts only if this session owns it: one of an older session would vanish under our
        feet, so it is deleted (CURATOR-498, CURATOR-696).
        """
        session_id = self._connected()
        if self._node is not None:
            self._doubtful.add(_prefix(self._node.name))
            self._node = None
        found = yield from self._adopt(session_id)
        made = found is None
        if found is None:
            prefix = new_latch_prefix()
            self._doubtful.add(prefix)
            found = yield from self._create(prefix)
            self._doubtful.discard(prefix)
        if self._session.session_id != session_id:
            self._doubtful.add(_prefix(found))
            raise ZooKeeperUnavailableError("the session changed while our latch node was made")
        self._node = Node(found, session_id)
        return ev.Joined(self._node, made)

    def look(self, node: Node) -> Steps[ev.SawSelf | ev.LatchGone]:
        """Find our place; watch our own node and the one before us, nobody else's."""
        try:
            queue = in_queue_order((yield from get_children(self._queue)))
        except NodeMissingError:
            return ev.LatchGone()  # the whole queue was deleted; joining makes it again (CURATOR-724)
        own = yield from exists(self._path(node.name), watch=True)
        names = [entry.name for entry in queue]
        if own is None or own.owner != node.session_id or node.name not in names:
            return ev.LatchGone()
        position = names.index(node.name)
        while position > 0:
            before = names[position - 1]
            if (yield from exists(self._path(before), watch=True)) is not None:
                break
            # It left between the two reads. Who is before us now was before us then: nobody joins in front.
            position -= 1
        place = Place(position, names[position - 1] if position else None)
        yield from self._claimant.stand_by(node, position, place.before)
        return ev.SawSelf(place)

    def claim(self, node: Node) -> Steps[ClaimAnswer]:
        """See `Claimant.claim`."""
        return (yield from self._claimant.claim(node))

    def prove(self, node: Node) -> Steps[ProofAnswer]:
        """See `Claimant.prove`."""
        return (yield from self._claimant.prove(node))

    def withdraw(self) -> Steps[ev.Withdrawn]:
        """Delete every node of ours; return only when none is left."""
        if self._node is not None:
            yield from self._delete(self._node)
            self._node = None
        if self._doubtful:
            yield from self._adopt(0)
        return ev.Withdrawn()

    def _delete(self, node: Node) -> Steps[None]:
        path = self._path(node.name)
        ours = node.session_id == self._session.session_id
        for operations in self._claimant.withdrawal(Delete(path)) if ours else ():
            try:
                yield from transaction(*operations)
            except TransactionFailedError:
                continue  # things are not as the owner thought
            return
        yield from delete_if_there(path)

    def _adopt(self, session_id: int) -> Steps[str | None]:
        """Find a node that an earlier try made for this session; delete all others of ours."""
        found: str | None = None
        if not self._doubtful:
            return None
        try:
            children = yield from get_children(self._queue)
        except NodeMissingError:
            children = []
        mine = [child for child in children if _prefix(child) in self._doubtful]
        for name in mine:
            stat = yield from exists(self._path(name))
            if stat is not None and stat.owner == session_id and found is None:
                found = name
            else:
                yield from delete_if_there(self._path(name))
        self._doubtful.clear()
        return found

    def _create(self, prefix: str) -> Steps[str]:
        try:
            path = yield from create(self._path(prefix), self._data, ephemeral=True, sequential=True)
        except NodeMissingError:
            yield from ensure_path(self._queue)
            path = yield from create(self._path(prefix), self._data, ephemeral=True, sequential=True)
        return path.rpartition("/")[2]

    def _path(self, name: str) -> str:
        return f"{self._queue}/{name}"

    def _connected(self) -> int:
        session_id = self._session.session_id
        if not self._session.is_connected or session_id is None:
            self._session.heal()
            raise ZooKeeperUnavailableError("there is no connection to ZooKeeper; waiting for one")
        return session_id


class PlainClaimant:
    """Wants nothing but the lock: what a latch alone commits is a check that its node is there."""

    def __init__(self, queue: str) -> None:
        self._queue = queue

    def stand_by(self, node: Node, position: int, before: str | None) -> Steps[None]:  # noqa: ARG002
        """Needs nothing."""
        yield from ()

    def claim(self, node: Node) -> Steps[ClaimAnswer]:
        """See `Claimant.claim`."""
        return ev.Claimed() if (yield from self._there(node)) else ev.LatchGone()

    def prove(self, node: Node) -> Steps[ProofAnswer]:
        """See `Claimant.prove`."""
        return ev.Proven() if (yield from self._there(node)) else ev.LatchGone()

    def withdrawal(self, deletion: Delete) -> Iterator[tuple[Operation, ...]]:  # noqa: ARG002
        """Leaves nothing."""
        return iter(())

    def _there(self, node: Node) -> Steps[bool]:
        """Ask with a transaction, not with a read: docs/election.md, "What proves a session"."""
        try:
            yield from transaction(Check(f"{self._queue}/{node.name}"))
        except TransactionFailedError as exc:
            exc.raise_if_forbidden()
            return False
        return True


def _prefix(name: str) -> str:
    """What we chose of a name; the server's part may begin with a minus of its own."""
    return name[: name.rfind(_BEFORE_SEQUENCE) + len(_BEFORE_SEQUENCE)]
