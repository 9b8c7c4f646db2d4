"""Measures many streams of events while nothing changes. The clients use several addresses."""

from __future__ import annotations

import asyncio
import time

import psutil

from leader import ZooKeeperSession
from nimbus.api.routes import events
from tests.benchmark.web.cluster import ROOT
from tests.benchmark.web.server import Served

GOAL_SHARE = 0.05
STREAMS = 300


async def _open(port: int, number: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    local = (f"127.0.1.{1 + number // events.MAX_OF_ONE}", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=local)
    writer.write(b"GET /api/v1/events?topic=runs&topic=cluster HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"id: ")
    return reader, writer


async def _measure(served: Served, seconds: float, session: ZooKeeperSession) -> str:
    server = psutil.Process(served.pid)
    before = server.memory_info().rss
    opened = [await _open(served.port, number) for number in range(STREAMS)]
    await asyncio.sleep(2)
    began, used = time.monotonic(), sum(server.cpu_times()[:2])
    await asyncio.sleep(seconds)
    took = time.monotonic() - began
    share = (sum(server.cpu_times()[:2]) - used) / took
    more = (server.memory_info().rss - before) / STREAMS / 1024
    waiting = [asyncio.create_task(reader.readuntil(b"event: changed")) for reader, _ in opened]
    began = time.monotonic()
    session.client.ensure_path(f"{ROOT}/runs/changed")
    told = []
    for done in asyncio.as_completed(waiting):
        await done
        told.append(time.monotonic() - began)
    for _, writer in opened:
        writer.close()
    return (
        f"{STREAMS} streams, nothing changes: {share:.2%} of a core over {took:.0f} s "
        f"({'met' if share <= GOAL_SHARE else 'MISSED'}: at most {GOAL_SHARE:.0%}), {more:.0f} KiB each\n"
        f"a change: reaches the first after {told[0] * 1000:.0f} ms, all after {told[-1] * 1000:.0f} ms"
    )


def measure(served: Served, seconds: float, session: ZooKeeperSession) -> str:
    """Measure the cost of streams, and how soon a change reaches all of them."""
    return asyncio.run(_measure(served, seconds, session))
