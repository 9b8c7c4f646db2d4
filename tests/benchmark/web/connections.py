"""Measures how 10,000 connections without a complete request affect other clients."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import psutil

from tests.benchmark.leader.figures import percentile
from tests.benchmark.web.server import Served

MANY = 10_000
PARTS = (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")


async def _hold(port: int, number: int, ended: Counter[str]) -> None:
    local = (f"127.0.2.{1 + number % 50}", 0)
    writer = None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=local)
        writer.write(PARTS[number % len(PARTS)])
        await reader.read()
        ended["closed"] += 1
    except OSError:
        ended["reset"] += 1
    finally:
        if writer is not None:
            writer.close()


async def _ask(port: int) -> float:
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    head = await reader.readline()
    writer.close()
    if b" 200 " not in head:
        raise OSError(f"/healthz was answered with {head!r}")
    return (time.perf_counter() - began) * 1000


async def _flood(served: Served) -> str:
    server, ended = psutil.Process(served.pid), Counter[str]()
    before, most = server.num_fds(), 0
    took, refused = [], 0
    clients = [asyncio.create_task(_hold(served.port, number, ended)) for number in range(MANY)]
    while any(not client.done() for client in clients):
        try:
            took.append(await asyncio.wait_for(_ask(served.port), 30))
        except (OSError, TimeoutError):
            refused += 1
        most = max(most, server.num_fds())
        await asyncio.sleep(0.05)
    for _ in range(100):
        if server.num_fds() <= before:
            break
        await asyncio.sleep(0.1)
    return (
        f"{MANY:,} connections without a request: {ended['closed']:,} closed, {ended['reset']:,} reset; "
        f"at most {most - before:,} more file descriptors, {server.num_fds() - before} more afterwards\n"
        f"other clients: {len(took)} answers, p50 {percentile(took, 0.5):.0f} ms, max {max(took):.0f} ms; "
        f"{refused} without an answer"
    )


def measure(served: Served) -> str:
    """Open the connections. Returns how they ended, and how other clients were answered."""
    return asyncio.run(_flood(served))
