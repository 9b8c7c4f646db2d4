"""Measures pages and streams on a real ZooKeeper: `make bench-web`; see docs/benchmarks.md."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from nimbus.localstack.zookeeper import ZooKeeperServer
from tests.benchmark.web import connections, pages, screen, streams
from tests.benchmark.web.cluster import SIZES, Counts, fill, large_run, session_to, world_of
from tests.benchmark.web.server import served

MEASURES = ("pages", "screen", "streams", "connections")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _measure(hosts: str, only: list[str], counts: Counts, seconds: float) -> None:
    session, world, began = session_to(hosts), world_of(counts), time.monotonic()
    store = fill(session, world, counts)
    _say(
        f"{counts.pipelines:,} pipelines and {counts.runs:,} live runs in {time.monotonic() - began:.0f} s\n"
    )
    with served(hosts, counts) as at:
        if "pages" in only:
            _say(pages.measure(at.url) + "\n")
        if "screen" in only:
            runs = {size: large_run(world, size) for size in SIZES}
            _say(screen.measure(at.url, store, runs) + "\n")
        if "streams" in only:
            _say(streams.measure(at, seconds, session) + "\n")
        if "connections" in only:
            _say(connections.measure(at))
    session.close(timedelta(seconds=5))


def main() -> None:
    """Print a table for each measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.web", description=__doc__)
    add = parser.add_argument
    add("--only", type=lambda text: text.split(","), default=list(MEASURES), help=f"of {','.join(MEASURES)}")
    add("--pipelines", type=int, default=1_000)
    add("--runs", type=int, default=10_000, help="number of live runs")
    add("--seconds", type=float, default=60, help="how long the streams are measured while nothing changes")
    asked = parser.parse_args()
    if unknown := set(asked.only) - set(MEASURES):
        parser.error(f"--only: {', '.join(sorted(unknown))} is none of {', '.join(MEASURES)}")
    with tempfile.TemporaryDirectory() as folder:
        zookeeper = ZooKeeperServer(Path(folder))
        zookeeper.start()
        try:
            counts = Counts(pipelines=asked.pipelines, runs=asked.runs)
            _measure(zookeeper.hosts, asked.only, counts, asked.seconds)
        finally:
            zookeeper.stop()


if __name__ == "__main__":
    main()
