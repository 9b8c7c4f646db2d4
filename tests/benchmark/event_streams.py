"""What many streams of events cost that have nothing to tell: `python -m tests.benchmark.event_streams`.

One server over a real ZooKeeper, in a process of its own; clients from loopback addresses of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import sys
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.zookeeper.changes import ZooKeeperChanges
from nimbus.api import event_hub
from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.integration.conftest import World

ROOT = "/bench"


def _session(hosts: str) -> ZooKeeperSession:
    session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts))
    session.start(timedelta(seconds=30))
    return session


def _serve(hosts: str, pipe: Connection) -> None:
    main = _session(hosts)
    changes = ZooKeeperChanges(lambda: _session(hosts), ROOT, lambda: main.last_zxid)
    server = ApiServer(create_app(replace(World().services(), changes=changes)))
    server.start()
    pipe.send(server.port)
    pipe.recv()
    server.stop()
    main.close(timedelta(seconds=5))


async def _open(port: int, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    local = (f"127.0.1.{1 + number // event_hub.MOST_OF_ONE}", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=local)
    writer.write(b"GET /api/v1/events?topic=runs&topic=cluster HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"id: ")
    return reader, writer


async def _measure(port: int, pid: int, streams: int, seconds: float, main: ZooKeeperSession) -> None:
    server = psutil.Process(pid)
    before = server.memory_info().rss
    opened = [await _open(port, number) for number in range(streams)]
    await asyncio.sleep(2)
    began, used = time.monotonic(), sum(server.cpu_times()[:2])
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    share = (sum(server.cpu_times()[:2]) - used) / took
    more = (server.memory_info().rss - before) / streams / 1024
    sys.stdout.write(f"{streams} streams: {share:.2%} of a core over {took:.0f} s, {more:.0f} KiB each\n")
    waiting = [asyncio.create_task(reader.readuntil(b"event: changed")) for reader, _ in opened]
    began = time.monotonic()
    main.client.ensure_path(f"{ROOT}/runs/r1")
    told = []
    for done in asyncio.as_completed(waiting):
        await done
        told.append(time.monotonic() - began)
    first_ms, last_ms = told[0] * 1000, told[-1] * 1000
    sys.stdout.write(f"a change: told to the first after {first_ms:.0f} ms, to all after {last_ms:.0f} ms\n")
    for _, writer in opened:
        writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=60)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        zookeeper = ZooKeeperServer(Path(folder))
        zookeeper.start()
        try:
            session = _session(zookeeper.hosts)
            session.client.ensure_path(f"{ROOT}/runs")
            ours, theirs = multiprocessing.Pipe()
            context = multiprocessing.get_context("spawn")
            server = context.Process(target=_serve, args=(zookeeper.hosts, theirs))
            server.start()
            asyncio.run(_measure(ours.recv(), server.pid or 0, asked.streams, asked.seconds, session))
            ours.send(None)
            server.join(30)
            session.close(timedelta(seconds=5))
        finally:
            zookeeper.stop()


if __name__ == "__main__":
    main()
