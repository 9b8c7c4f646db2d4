"""Clients of a ZooKeeper, real or in memory, for the suites that compare both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeVar

from leader import ZooKeeperConfig, ZooKeeperSession
from leader.local.zookeeper import MemoryConnection, MemoryZooKeeper
from leader.protocol.requests import Steps
from leader.zookeeper.executor import SessionExecutor
from tests.leader.virtual_clock import VirtualClock

T = TypeVar("T")

TIMEOUT = timedelta(seconds=10)


class Runs(Protocol):
    """The methods that both have."""

    def run(self, steps: Steps[T]) -> T: ...


@dataclass(slots=True)
class Client:
    """One client of either ZooKeeper."""

    port: Runs
    fired: list[tuple[str, bool]]
    session_id: int
    end: Callable[[], None]

    def run(self, steps: Steps[T]) -> T:
        return self.port.run(steps)


class Bench:
    """Makes clients, and ends them."""

    def __init__(self, root: str, hosts: str | None) -> None:
        self.root, self._hosts = root, hosts
        self._memory = MemoryZooKeeper(VirtualClock())
        self._clients: list[Client] = []

    def client(self) -> Client:
        fired: list[tuple[str, bool]] = []

        def on_watch(path: str, gone: bool) -> None:
            fired.append((path, gone))

        client = self._in_memory(fired, on_watch) if self._hosts is None else self._real(fired, on_watch)
        self._clients.append(client)
        return client

    def end(self) -> None:
        for client in self._clients:
            client.end()

    def _in_memory(self, fired: list[tuple[str, bool]], on_watch: Callable[[str, bool], None]) -> Client:
        connection: MemoryConnection = self._memory.connect(on_watch)
        return Client(connection, fired, connection.session_id, connection.close)

    def _real(self, fired: list[tuple[str, bool]], on_watch: Callable[[str, bool], None]) -> Client:
        session = ZooKeeperSession(ZooKeeperConfig(hosts=self._hosts or "", session_timeout=TIMEOUT))
        session.start(TIMEOUT)
        executor = SessionExecutor(session, on_watch)
        return Client(executor, fired, session.session_id or 0, lambda: session.close(TIMEOUT))
