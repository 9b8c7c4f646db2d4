"""Sends requests over a ZooKeeper session. The caller's thread waits for each answer, with a limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, assert_never

from kazoo import exceptions as kazoo
from kazoo.client import TransactionRequest
from kazoo.protocol.states import EventType, WatchedEvent, ZnodeStat

from leader.clock import Countdown
from leader.errors import LeaderError, ZooKeeperUnavailableError
from leader.protocol import requests as rq
from leader.protocol.requests import drive
from leader.zookeeper.fencing import first_failure
from leader.zookeeper.session import ZooKeeperSession

T = TypeVar("T")

_REFUSALS: dict[type[Exception], type[rq.RequestRefusedError]] = {
    kazoo.NoNodeError: rq.NodeMissingError,
    kazoo.NodeExistsError: rq.NodeExistsError,
    kazoo.BadVersionError: rq.VersionMismatchError,
    kazoo.NotEmptyError: rq.NotEmptyError,
    kazoo.NoAuthError: rq.NotPermittedError,
    kazoo.NoChildrenForEphemeralsError: rq.NotPermittedError,
    kazoo.InvalidACLError: rq.NotPermittedError,
}


class SessionExecutor:
    """Runs steps over one session.

    `on_watch` is called on kazoo's connection thread when a watch fires, with its path, and True if the node
    is gone. It must only enqueue.
    """

    def __init__(
        self, session: ZooKeeperSession, on_watch: Callable[[str, bool], None] = lambda _path, _gone: None
    ) -> None:
        self._session, self._on_watch = session, on_watch

    def run(self, steps: rq.Steps[T]) -> T:
        """Run `steps` to their end. Raises what they raise."""
        return drive(steps, self.answer)

    def forget_watches(self) -> None:
        """Call `on_watch` no more. For the end: the session would keep it until each watch fires."""
        self._session.forget_watcher(self._fired)

    def answer(self, request: rq.Request) -> Any:
        """Send one request and wait for the answer. The request's class describes answer and errors."""
        # Without a connection, fail at once: the latch's state machine waits for one, not this thread.
        if not self._session.is_connected:
            self._session.heal()
            raise ZooKeeperUnavailableError("there is no connection to ZooKeeper; waiting for one")
        try:
            return self._ask(request)
        except kazoo.KazooException as exc:
            path = getattr(request, "path", "several nodes")
            raise _translated(exc, path) from exc

    def _ask(self, request: rq.Request) -> Any:
        client = self._session.client
        match request:
            case rq.Transaction(operations):
                return self._commit(operations)
            case rq.GetChildren(path, watch):
                return self._call(client.get_children_async, path, watch=self._watch(watch))
            case rq.Exists(path, watch):
                seen = self._call(client.exists_async, path, watch=self._watch(watch))
                return None if seen is None else _stat(seen)
            case rq.Get(path, watch):
                data, stat = self._call(client.get_async, path, watch=self._watch(watch))
                return data, _stat(stat)
            case rq.GetEach(paths):
                return self._get_each(paths)
            case rq.Create(path, data, ephemeral, sequential):
                return self._call(client.create_async, path, data, ephemeral=ephemeral, sequence=sequential)
            case rq.SetData(path, data, version):
                return _stat(self._call(client.set_async, path, data, version))
            case rq.Delete(path, version):
                self._call(client.delete_async, path, version)
                return None
            case rq.EnsurePath(path):
                self._session.ensure_above(path.rpartition("/")[0])
                self._call(client.ensure_path_async, path)
                return None
            case _:
                assert_never(request)

    def _get_each(self, paths: tuple[str, ...]) -> tuple[Any, ...]:
        client = self._session.client

        def get_each_async() -> Together:
            return Together([client.get_async(path) for path in paths], tuple(_REFUSALS))

        answers = self._call(get_each_async)
        return tuple(_node(answer, path) for path, answer in zip(paths, answers, strict=True))

    def _commit(self, operations: tuple[rq.Operation, ...]) -> tuple[Any, ...]:
        transaction = self._session.client.transaction()
        for operation in operations:
            _add(transaction, operation)
        results = self._call(transaction.commit_async)
        failed = first_failure(results)
        if failed is None:
            return tuple(_stat(result) if isinstance(result, ZnodeStat) else result for result in results)
        index, error = failed
        cause = _translated(error, operations[index].path)
        if isinstance(cause, rq.RequestRefusedError):
            raise rq.TransactionFailedError(index, cause) from error
        raise cause from error

    def _call(self, method: Callable[..., Any], *args: Any, **kw: Any) -> Any:
        return self._session.call(method, *args, timeout=self._session.answer_limit, **kw)

    def _watch(self, wanted: bool) -> Callable[[WatchedEvent], None] | None:
        return self._fired if wanted else None

    def _fired(self, event: WatchedEvent) -> None:
        """On kazoo's connection thread: only enqueue. A watch also fires, with type NONE, on a disconnect."""
        self._on_watch(event.path or "", event.type == EventType.DELETED)

    _fired.only_enqueues = True  # type: ignore[attr-defined]  # see handler.Handler


class Together:
    """The answers to several requests that were sent together, with the interface of one pending answer.

    The errors `kept` are the answer to one request, and do not concern the connection.
    """

    def __init__(self, pending: Sequence[Any], kept: tuple[type[Exception], ...]) -> None:
        self._pending, self._kept = pending, kept

    def get(self, timeout: float) -> list[Any]:
        """Wait at most `timeout` seconds for all. Returns for each its answer, or its error if it is kept."""
        left = Countdown(timedelta(seconds=timeout))
        return [self._one(answer, left) for answer in self._pending]

    def _one(self, answer: Any, left: Countdown) -> Any:
        try:
            return answer.get(timeout=left.remaining().total_seconds())
        except self._kept as exc:
            return exc


def _node(answer: Any, path: str) -> tuple[bytes, rq.Stat] | LeaderError:
    if isinstance(answer, Exception):
        return _translated(answer, path)
    data, stat = answer
    return data, _stat(stat)


def _add(transaction: TransactionRequest, operation: rq.Operation) -> None:
    match operation:
        case rq.Check(path, version):
            transaction.check(path, version)
        case rq.Create(path, data, ephemeral, sequential):
            transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
        case rq.SetData(path, data, version):
            transaction.set_data(path, data, version)
        case rq.Delete(path, version):
            transaction.delete(path, version)


def _translated(error: Exception, path: str) -> LeaderError:
    for theirs, ours in _REFUSALS.items():
        if isinstance(error, theirs):
            return ours(path)
    return ZooKeeperUnavailableError(
        f"ZooKeeper answered {type(error).__name__} for {path}; the outcome of a write is unknown"
    )


def _stat(stat: ZnodeStat) -> rq.Stat:
    return rq.Stat(
        version=stat.version,
        owner=stat.ephemeralOwner,
        created_zxid=stat.czxid,
        modified_zxid=stat.mzxid,
        modified_ms=stat.mtime,
    )
