"""A runner's connections to ZooKeeper and storage: as data that can be sent to it, and as open clients.

The data contains secrets. It goes to a runner through a pipe, and `repr` does not show it.
Third-party clients are imported only when they are needed, so that a runner stays small.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nimbus.domain.errors import NimbusError
from nimbus.ports import AttemptBoard, LogArchive, StoreUnavailableError

if TYPE_CHECKING:
    from blobsync import S3ObjectStore

_CONNECT_TIMEOUT = timedelta(seconds=10)
_CLOSE_TIMEOUT = timedelta(seconds=3)
_USUAL_SESSION_TIMEOUT_S = 10.0
"""As of `leader.ZooKeeperConfig`."""


class UnknownConnectionError(NimbusError):
    """A runner got a kind of connection that it does not know."""

    code = "unknown_connection"

    def __init__(self, what: str, given: str) -> None:
        super().__init__(
            f"{what} connection {given!r} is of no known kind; use the same version for worker and runner."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """The places to which a runner reports."""

    board: Mapping[str, Any] = field(repr=False)
    """`{"kind": "zookeeper", "root": ...}` and the fields of `leader.ZooKeeperConfig`, timeouts in seconds
    (`session_timeout_s`, ...); or `{"kind": "sqlite", "root": ..., "file": ...}`."""
    logs: Mapping[str, Any] | None = field(default=None, repr=False)
    """`{"kind": "s3"}` and the fields of `blobsync.S3Config`, likewise; None: logs stay in folders."""
    data: Mapping[str, Any] | None = field(default=None, repr=False)
    """The bucket of task outputs, in the form of `logs`; None: outputs are in a folder."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The worker's environment, in which S3 clients find what `logs` and `data` do not say: credentials of
    the usual AWS chain, certificates, proxies. See `storage_environment`."""

    @property
    def session_timeout_s(self) -> float:
        """ZooKeeper ends the session after this time without contact."""
        return float(self.board.get("session_timeout_s", _USUAL_SESSION_TIMEOUT_S))


def storage_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """A worker's environment for the processes that store logs and outputs.

    Whole, because a `credential_process` may need any variable; without our own variables, whose values come
    in the other fields, or are secrets of tasks; and without what is not UTF-8, which JSON cannot have.
    """
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("NIMBUS") and (name + value).encode(errors="ignore").decode() == name + value
    }


def enter_environment(connections: Connections) -> None:
    """Make `Connections.environment` this process's own. /proc does not show it.

    Call it once, after the last fork that must not know it. Programs started later get an environment that
    `nimbus.worker.driver.environment.passed_on` has filtered.
    """
    os.environ.update(connections.environment)


@dataclass(frozen=True, slots=True)
class OpenBoard:
    """An attempt board, and the function that closes it."""

    board: AttemptBoard
    close: Callable[[], None]


def import_clients() -> None:
    """Import and read everything that the functions below use, so that forks of this process need not."""
    from blobsync.s3.client import load_models

    load_models()
    for module in (
        "blobsync.s3.store",
        "blobsync.s3.upload",
        "nimbus.adapters.s3_logs",
        "nimbus.adapters.store.board",
        "nimbus.adapters.zookeeper.calls",
    ):
        import_module(module)


def open_board(connections: Connections) -> OpenBoard:
    """Connect to the board. StoreUnavailableError: try again. UnknownConnectionError: an unknown kind."""
    settings = _with_durations(connections.board)
    kind = settings.pop("kind", None)
    match kind:
        case "zookeeper":
            return _open_zookeeper(settings)
        case "sqlite":
            return _open_sqlite(Path(settings["file"]), settings["root"])
        case _:
            raise UnknownConnectionError("board", str(kind))


def _open_sqlite(file: Path, root: str) -> OpenBoard:
    from nimbus.adapters.sqlite.calls import SqliteCalls
    from nimbus.adapters.sqlite.session import SqliteSession
    from nimbus.adapters.store.board import TreeAttemptBoard

    session = SqliteSession(file)
    session.start()
    return OpenBoard(TreeAttemptBoard(SqliteCalls(session), root), lambda: session.close(_CLOSE_TIMEOUT))


def _open_zookeeper(settings: dict[str, Any]) -> OpenBoard:
    import leader
    from nimbus.adapters.store.board import TreeAttemptBoard
    from nimbus.adapters.zookeeper.calls import ZooKeeperCalls

    root = settings.pop("root")
    if (auth := settings.pop("auth", None)) is not None:
        settings["auth"] = tuple(auth)  # JSON has lists only
    if (tls := settings.pop("tls", None)) is not None:
        settings["tls"] = leader.TlsConfig(**tls)
    session = leader.ZooKeeperSession(leader.ZooKeeperConfig(**settings))
    try:
        session.start(_CONNECT_TIMEOUT)
    except leader.LeaderError as exc:
        if not exc.retryable:
            raise
        raise StoreUnavailableError(f"connection for attempts: {exc}") from exc
    return OpenBoard(TreeAttemptBoard(ZooKeeperCalls(session), root), lambda: session.close(_CLOSE_TIMEOUT))


def _with_durations(where: Mapping[str, Any]) -> dict[str, Any]:
    """Convert seconds to durations, which JSON lacks: `session_timeout_s: 10` to `session_timeout`."""
    settings: dict[str, Any] = {}
    for name, value in where.items():
        if name.endswith("_timeout_s"):
            settings[name.removesuffix("_s")] = timedelta(seconds=value)
        else:
            settings[name] = value
    return settings


def open_logs(connections: Connections) -> LogArchive | None:
    """Connect to the store of logs; None: they stay in the attempt's folder. UnknownConnectionError."""
    if connections.logs is None:
        return None
    from nimbus.adapters.s3_logs import S3LogArchive

    return S3LogArchive(_open_s3("logs", connections.logs))


def open_data(where: Mapping[str, Any] | None) -> S3ObjectStore:
    """Connect to the bucket of task outputs, by `Connections.data`. Raises UnknownConnectionError."""
    return _open_s3("data", where or {})


def _open_s3(what: str, where: Mapping[str, Any]) -> S3ObjectStore:
    settings = _with_durations(where)
    kind = settings.pop("kind", None)
    if kind != "s3":
        raise UnknownConnectionError(what, str(kind))
    from blobsync import S3Config, S3ObjectStore

    return S3ObjectStore(S3Config(**settings))
