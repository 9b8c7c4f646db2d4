"""Serves a scheduler's API and pages from a real ZooKeeper, in a separate process."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection

from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeClusterReader
from nimbus.adapters.zookeeper.calls import ZooKeeperChanges
from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.web.app import add_pages
from tests.benchmark.web.cluster import ROOT, Counts, session_to, world_of


@dataclass(frozen=True)
class Served:
    """Address and pid of the server."""

    url: str
    port: int
    pid: int


def _serve(hosts: str, counts: Counts, pipe: Connection) -> None:
    session = session_to(hosts)
    services = replace(
        world_of(counts).services(),
        reader=TreeClusterReader(calls_on(session), ROOT),
        changes=ZooKeeperChanges(lambda: session_to(hosts), ROOT, lambda: session.last_zxid),
    )
    app = create_app(services)
    add_pages(app, services)
    server = ApiServer(app)
    server.start()
    pipe.send(server.port)
    pipe.recv()
    server.stop()


@contextmanager
def served(hosts: str, counts: Counts) -> Iterator[Served]:
    """Serve until the end of the block."""
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(hosts, counts, theirs))
    server.start()
    try:
        port = ours.recv()
        yield Served(url=f"http://127.0.0.1:{port}", port=port, pid=server.pid or 0)
        ours.send(None)
        server.join(30)
    finally:
        server.kill()
