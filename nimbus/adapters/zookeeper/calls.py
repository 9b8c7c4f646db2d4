"""The calls of the adapters in ZooKeeper, and the feed of its changes.

Each call goes through `ZooKeeperSession.call`, which has a timeout.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kazoo.exceptions import KazooException, NoAuthError, NodeExistsError, NoNodeError, NotEmptyError
from kazoo.protocol.states import Callback, EventType, WatchedEvent

from leader import FencingToken, LeaderError, ZooKeeperSession, fenced_transaction
from leader.zookeeper.fencing import first_failure
from nimbus.adapters.store.calls import Build, Calls, NodeStat, batched, check_size
from nimbus.adapters.store.changes import Gathered, Topics
from nimbus.adapters.zookeeper.multi_read import DATA, NAMES, WatchKind, multi_read_async, set_watches_async
from nimbus.ports import Enqueue, LiveChanges, StoreDeniedError, StoreUnavailableError

MAX_TOGETHER = 1000
"""Most requests that are sent without waiting, each with the full timeout of the call. Most nodes that one
request watches, whose paths must fit into it."""
MAX_IN_ONE = 100
"""Most nodes that one request reads. Most have less than 2 KiB."""


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
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
class _EnqueueingWatch:
    """A watch that ignores the event and only enqueues, because kazoo's own thread calls it.

    Equal for equal functions: kazoo keeps a set of watches for each path, which must not grow if a path is
    read many times before it changes.
    """

    changed: Enqueue

    def __call__(self, _event: object) -> None:
        self.changed()


def _watch(changed: Enqueue | None) -> dict[str, Any]:
    return {} if changed is None else {"watch": _EnqueueingWatch(changed)}


class ZooKeeperCalls(Calls):
    """See `nimbus.adapters.store.calls.Calls`.

    `patience`: longest wait for a connection, if there is none; None: as long as for an answer.
    """

    def __init__(self, session: ZooKeeperSession, patience: timedelta | None = None) -> None:
        self.session, self._patience = session, patience

    @property
    def session_id(self) -> int | None:
        return self.session.session_id

    def get(self, path: str, changed: Enqueue | None = None) -> bytes | None:
        with translated_errors(f"read {path}"):
            try:
                data: bytes = self._call(self.session.client.get_async, path, **_watch(changed))[0]
            except NoNodeError:
                return None
            return data

    def exists(self, path: str, changed: Enqueue | None = None) -> bool:
        with translated_errors(f"look for {path}"):
            return self._call(self.session.client.exists_async, path, **_watch(changed)) is not None

    def children(self, path: str, changed: Enqueue | None = None) -> tuple[str, ...] | None:
        with translated_errors(f"list {path}"):
            try:
                names = self._call(self.session.client.get_children_async, path, **_watch(changed))
            except NoNodeError:
                return None
            return tuple(sorted(names))

    def stat(self, path: str) -> NodeStat | None:
        with translated_errors(f"look for {path}"):
            stat = self._call(self.session.client.exists_async, path)
            if stat is None:
                return None
            return NodeStat(
                owner=int(stat.ephemeralOwner),
                children_zxid=int(stat.pzxid),
                origin=(int(stat.czxid), int(stat.ctime)),
                written_at=datetime.fromtimestamp(stat.mtime / 1000, UTC),
            )

    def read_all(self, parent: str, names: Iterable[str]) -> tuple[tuple[str, bytes], ...]:
        wanted = tuple(names)
        with translated_errors(f"read all below {parent}"):
            nodes = self._read((DATA, f"{parent}/{name}") for name in wanted)
        return tuple((name, data) for name, data in zip(wanted, nodes, strict=True) if data is not None)

    def read_watched(self, parent: str, changed: Mapping[str, Enqueue]) -> tuple[tuple[str, bytes], ...]:
        zxid = self.session.last_zxid
        nodes = self.read_all(parent, changed)
        self._arm(zxid, "data", {f"{parent}/{name}": changed[name] for name, _ in nodes})
        return nodes

    def await_all(self, changed: Mapping[str, Enqueue]) -> None:
        self._arm(self.session.last_zxid, "existence", changed)

    def list_and_read(
        self, parents: Iterable[str], changed: Iterable[Enqueue | None], nodes: Iterable[str]
    ) -> tuple[list[tuple[str, ...] | None], list[bytes | None]]:
        zxid, parents = self.session.last_zxid, tuple(parents)
        with translated_errors("read several nodes"):
            answers = self._read([*((NAMES, path) for path in parents), *((DATA, path) for path in nodes)])
        names = [None if listed is None else tuple(sorted(listed)) for listed in answers[: len(parents)]]
        there = zip(parents, changed, names, strict=True)
        self._arm(zxid, "children", {path: tell for path, tell, below in there if tell and below is not None})
        return names, answers[len(parents) :]

    def await_watches(self) -> None:
        """Wait until kazoo has called the watches that arrived before the last response.

        Its connection thread queues them before it reads the response; another thread calls them, in order.
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
        for requests in batched(batched(reads, MAX_IN_ONE), MAX_TOGETHER):
            self.session.await_connection(self._patience)
            pending = [multi_read_async(self.session.client, some) for some in requests]
            for answer in pending:
                answers += self._call(lambda answer=answer: answer)
        return answers

    def _arm(self, zxid: int, kind: WatchKind, changed: Mapping[str, Enqueue]) -> None:
        """Arm watches. Those on nodes that have changed since `zxid` fire at once.

        So a node that was read after `zxid` was noted, and before this, is not older than its watch.
        """
        for some in batched(changed.items(), MAX_TOGETHER):
            watchers = {path: _EnqueueingWatch(tell) for path, tell in some}
            with translated_errors("watch several nodes"):
                self._call(set_watches_async, self.session.client, zxid, kind, watchers)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> str:
        check_size(path, len(data))
        with translated_errors(f"create {path}"):
            made: str = self._call(
                self.session.client.create_async, path, data, ephemeral=ephemeral, sequence=sequence
            )
            return made

    def create_with(self, path: str, data: bytes, other: str, other_data: bytes) -> str:
        check_size(path, len(data))
        transaction = self.session.client.transaction()
        transaction.create(other, other_data)
        transaction.create(path, data, sequence=True)
        with translated_errors(f"create {path}"):
            results = self._call(transaction.commit_async)
            refused = first_failure(results)
            if refused is not None:
                raise refused[1]
            made: str = results[1]
            return made

    def transact(self, what: str, build: Build) -> None:
        transaction = self.session.client.transaction()
        build(transaction)
        with translated_errors(what):
            refused = first_failure(self._call(transaction.commit_async))
            if refused is not None:
                raise refused[1]

    def fenced(self, what: str, token: FencingToken, build: Build) -> None:
        with translated_errors(what):
            fenced_transaction(self.session, token, build)

    def ensure(self, path: str) -> None:
        with translated_errors(f"create {path}"):
            self._call(self.session.client.ensure_path_async, path)

    def ensure_above(self, root: str) -> None:
        with translated_errors(f"create the nodes above {root}"):
            self.session.ensure_above(root)

    def set(self, path: str, data: bytes) -> bool:
        check_size(path, len(data))
        with translated_errors(f"write {path}"):
            try:
                self._call(self.session.client.set_async, path, data)
            except NoNodeError:
                return False
            return True

    def delete(self, path: str) -> bool:
        with translated_errors(f"delete {path}"):
            try:
                self._call(self.session.client.delete_async, path)
            except NoNodeError:
                return False
            return True


_CLOSE = timedelta(seconds=1)


class ZooKeeperChanges:
    """See `nimbus.ports.ChangeFeed`. `connect` opens a separate session, or raises LeaderError."""

    def __init__(
        self, connect: Callable[[], ZooKeeperSession], root: str, version: Callable[[], int]
    ) -> None:
        self._connect, self._root, self.version = connect, root, version
        self._topics = Topics(root)
        self._session: ZooKeeperSession | None = None
        self._gathered = Gathered(self._topics, lambda: None)
        self._armed: int | None = None
        """The connection that has our watches."""

    def start(self, told: Enqueue) -> None:
        self._gathered, self._armed = Gathered(self._topics, told), None
        with translated_errors("follow changes"):
            self._session = self._connect()
        self._session.tell_below(self._on_event)
        self._session.add_listener(lambda _state: told())

    def take(self, *, beats: bool) -> LiveChanges:
        session = self._session
        if session is None:
            raise StoreUnavailableError("changes are not followed.")
        with translated_errors("follow changes"):
            generation, armed = session.generation, self._armed
            self._armed = None  # if one of these fails, the next call starts again
            lost = generation != armed
            if lost:
                for parent in self._topics.parents:
                    session.watch_below(parent)
            version = self._last_transaction(session)
            taken = self._gathered.take(beats=beats or lost)
            upto = self._last_transaction(session) if taken else version
            self._armed = generation
        return LiveChanges(taken, version, upto, lost=lost)

    def stop(self) -> None:
        if self._session is not None:
            self._session.close(_CLOSE)
            self._session = None

    def _last_transaction(self, session: ZooKeeperSession) -> int:
        """The server's last transaction. All earlier changes have been delivered."""
        session.call(session.client.exists_async, self._root)
        return session.last_zxid

    def _on_event(self, event: WatchedEvent) -> None:
        """Called on kazoo's connection thread."""
        self._gathered.add(event.path, is_change=event.type == EventType.CHANGED)
