"""The calls of the adapters in ZooKeeper. Each goes through `ZooKeeperSession.call`, which has a timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.states import Callback

from leader import FencingToken, LeaderError, ZooKeeperSession, fenced_transaction
from leader.zookeeper.fencing import first_failure
from nimbus.adapters.store.calls import Build, Calls, batched, check_size
from nimbus.adapters.zookeeper.multi_read import DATA, NAMES, WatchKind, multi_read_async, set_watches_async
from nimbus.ports import Enqueue, StoreDeniedError, StoreUnavailableError

MOST_TOGETHER = 1000
"""Most requests that are sent without waiting, each with the full timeout of the call. Most nodes that one
request watches, whose paths must fit into it."""
MOST_IN_ONE = 100
"""Most nodes that one request reads. Most have less than 2 KiB."""


@contextmanager
def in_our_words(what: str) -> Iterator[None]:
    """Translate errors of `leader` and kazoo to ours."""
    try:
        yield
    except LeaderError as exc:
        if not exc.retryable:
            raise
        raise StoreUnavailableError(f"{what}: {exc}") from exc
    except (NoNodeError, NodeExistsError, NotEmptyError):
        raise
    except NoAuthError as exc:
        raise StoreDeniedError(
            f"{what}: ZooKeeper's access list does not let this process: give zookeeper.username and "
            "password as all daemons of the cluster have them (`nimbus cluster acl` lists what differs)."
        ) from exc
    except KazooException as exc:
        answer = f"{type(exc).__name__} {exc}".rstrip()
        raise StoreUnavailableError(f"{what}: ZooKeeper answered {answer}") from exc


@dataclass(frozen=True, slots=True)
class _LookAgain:
    """A watch that ignores the event and only enqueues, because kazoo's own thread calls it.

    Equal for equal functions: kazoo keeps a set of watches for each path, which must not grow if a path is
    read many times before it changes.
    """

    changed: Enqueue

    def __call__(self, _event: object) -> None:
        self.changed()


def _watch(changed: Enqueue | None) -> dict[str, Any]:
    return {} if changed is None else {"watch": _LookAgain(changed)}


class ZooKeeperCalls(Calls):
    """See `nimbus.adapters.store.calls.Calls`.

    Args:
        session: The session.
        patience: Longest wait for a connection, if there is none; None: as long as for an answer.
    """

    def __init__(self, session: ZooKeeperSession, patience: timedelta | None = None) -> None:
        self.session, self._patience = session, patience

    @property
    def session_id(self) -> int | None:
        """Id of the current session, which owns ephemeral nodes that are created now."""
        return self.session.session_id

    def get(self, path: str, changed: Enqueue | None = None) -> bytes | None:
        """Data of a node; None if there is none (then no watch is armed)."""
        with in_our_words(f"read {path}"):
            try:
                data: bytes = self._call(self.session.client.get_async, path, **_watch(changed))[0]
            except NoNodeError:
                return None
            return data

    def exists(self, path: str, changed: Enqueue | None = None) -> bool:
        """True if a node exists; the watch also fires when it is created."""
        with in_our_words(f"look for {path}"):
            return self._call(self.session.client.exists_async, path, **_watch(changed)) is not None

    def children(self, path: str, changed: Enqueue | None = None) -> tuple[str, ...] | None:
        """Names of a node's children, sorted; None if the node does not exist."""
        with in_our_words(f"list {path}"):
            try:
                names = self._call(self.session.client.get_children_async, path, **_watch(changed))
            except NoNodeError:
                return None
            return tuple(sorted(names))

    def children_zxid(self, path: str) -> int | None:
        """Transaction that last created or removed a child; None if the node does not exist."""
        with in_our_words(f"look for {path}"):
            stat = self._call(self.session.client.exists_async, path)
            return None if stat is None else int(stat.pzxid)

    def read_all(self, parent: str, names: Iterable[str]) -> tuple[tuple[str, bytes], ...]:
        """Name and data of some children, read together; missing ones are left out."""
        wanted = tuple(names)
        with in_our_words(f"read all below {parent}"):
            found = self._read((DATA, f"{parent}/{name}") for name in wanted)
        return tuple((name, data) for name, data in zip(wanted, found, strict=True) if data is not None)

    def read_watched(self, parent: str, changed: Mapping[str, Enqueue]) -> tuple[tuple[str, bytes], ...]:
        """Like `read_all`, with a watch on each: `changed` has the callbacks by name."""
        zxid = self.session.last_zxid
        found = self.read_all(parent, changed)
        self._arm(zxid, "data", {f"{parent}/{name}": changed[name] for name, _ in found})
        return found

    def await_all(self, changed: Mapping[str, Enqueue]) -> None:
        """Call the callbacks of existing nodes, and those of missing ones when they are created."""
        self._arm(self.session.last_zxid, "existence", changed)

    def list_and_read(
        self, parents: Iterable[str], changed: Iterable[Enqueue | None], nodes: Iterable[str]
    ) -> tuple[list[tuple[str, ...] | None], list[bytes | None]]:
        """Names of the children of `parents`, then data of `nodes`, in one round trip.

        No data are older than the names, or than the watches. None for a missing node, which is not watched.
        """
        zxid, parents = self.session.last_zxid, tuple(parents)
        with in_our_words("read several nodes"):
            found = self._read([*((NAMES, path) for path in parents), *((DATA, path) for path in nodes)])
        names = [None if listed is None else tuple(sorted(listed)) for listed in found[: len(parents)]]
        there = zip(parents, changed, names, strict=True)
        self._arm(zxid, "children", {path: tell for path, tell, one in there if tell and one is not None})
        return names, found[len(parents) :]

    def await_watches(self) -> None:
        """Wait until kazoo has called the watches that arrived before the last response.

        Its connection thread queues them before it reads the response; another thread calls them, in order.

        Raises:
            StoreUnavailableError: that thread is stuck, or the session is closed.
        """
        called = threading.Event()
        self.session.client.handler.dispatch_callback(Callback("watch", called.set, ()))
        if not called.wait(self.session.config.call_timeout.total_seconds()):
            raise StoreUnavailableError("the thread that tells of changes in ZooKeeper does not answer.")

    def _call(self, method: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        return self.session.call(method, *args, patience=self._patience, **kw)

    def _read(self, reads: Iterable[tuple[int, str]]) -> list[Any]:
        """Read many nodes, see `MultiRead`. Requests are sent without waiting between them."""
        answers: list[Any] = []
        for requests in batched(batched(reads, MOST_IN_ONE), MOST_TOGETHER):
            self.session.await_connection(self._patience)
            pending = [multi_read_async(self.session.client, some) for some in requests]
            for answer in pending:
                answers += self._call(lambda answer=answer: answer)
        return answers

    def _arm(self, zxid: int, kind: WatchKind, changed: Mapping[str, Enqueue]) -> None:
        """Arm watches. Those on nodes that have changed since `zxid` fire at once.

        So a node that was read after `zxid` was noted, and before this, is not older than its watch.
        """
        for some in batched(changed.items(), MOST_TOGETHER):
            watchers = {path: _LookAgain(tell) for path, tell in some}
            with in_our_words("watch several nodes"):
                self._call(set_watches_async, self.session.client, zxid, kind, watchers)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a node. NodeExistsError and NoNodeError (no parent) pass through."""
        check_size(path, len(data))
        with in_our_words(f"create {path}"):
            made: str = self._call(
                self.session.client.create_async, path, data, ephemeral=ephemeral, sequence=sequence
            )
            return made

    def create_with(self, path: str, data: bytes, other: str, other_data: bytes) -> str:
        """Create a sequential node and another one, or neither. NodeExistsError: the other one exists."""
        check_size(path, len(data))
        transaction = self.session.client.transaction()
        transaction.create(other, other_data)
        transaction.create(path, data, sequence=True)
        with in_our_words(f"create {path}"):
            results = self._call(transaction.commit_async)
            refused = first_failure(results)
            if refused is not None:
                raise refused[1]
            made: str = results[1]
            return made

    def transact(self, what: str, build: Build) -> None:
        """Execute all operations that `build` adds, or none."""
        transaction = self.session.client.transaction()
        build(transaction)
        with in_our_words(what):
            refused = first_failure(self._call(transaction.commit_async))
            if refused is not None:
                raise refused[1]

    def fenced(self, what: str, token: FencingToken, build: Build) -> None:
        """Like `transact`, but only in the term of `token`. See `fenced_transaction`."""
        with in_our_words(what):
            fenced_transaction(self.session, token, build)

    def ensure(self, path: str) -> None:
        """Create a persistent node and its parents, unless it exists."""
        with in_our_words(f"create {path}"):
            self._call(self.session.client.ensure_path_async, path)

    def ensure_above(self, root: str) -> None:
        """Create the nodes above a root, open for the roots of others."""
        with in_our_words(f"create the nodes above {root}"):
            self.session.ensure_above(root)

    def set(self, path: str, data: bytes) -> bool:
        """Replace a node's data; False if it does not exist."""
        check_size(path, len(data))
        with in_our_words(f"write {path}"):
            try:
                self._call(self.session.client.set_async, path, data)
            except NoNodeError:
                return False
            return True

    def delete(self, path: str) -> bool:
        """Delete a node; False if it does not exist."""
        with in_our_words(f"delete {path}"):
            try:
                self._call(self.session.client.delete_async, path)
            except NoNodeError:
                return False
            return True

    def owner(self, path: str) -> int | None:
        """Session that owns an ephemeral node; None if it does not exist, 0 if it is persistent."""
        with in_our_words(f"look for {path}"):
            stat = self._call(self.session.client.exists_async, path)
            return None if stat is None else int(stat.ephemeralOwner)

    def written_at(self, path: str) -> datetime | None:
        """The server's time of the last write of a node; None if it does not exist."""
        with in_our_words(f"look for {path}"):
            stat = self._call(self.session.client.exists_async, path)
            return None if stat is None else datetime.fromtimestamp(stat.mtime / 1000, UTC)

    def origin(self, path: str) -> tuple[int, int] | None:
        """Transaction that created a node, and its time in milliseconds; None if it does not exist."""
        with in_our_words(f"look for {path}"):
            stat = self._call(self.session.client.exists_async, path)
            return None if stat is None else (int(stat.czxid), int(stat.ctime))
