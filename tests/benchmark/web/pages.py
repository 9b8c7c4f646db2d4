"""Measures bytes and times of each page."""

from __future__ import annotations

import gzip
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx

from tests.benchmark.leader.figures import percentile
from tests.benchmark.leader.table import aligned
from tests.benchmark.web.cluster import SIZES

GOAL_BYTES = 60_000
ASKED = 20


@dataclass(frozen=True)
class Weighed:
    """The figures of one page, without scripts and style, which the browser already has."""

    path: str
    sent: int
    raw: int
    first_ms: float
    p50_ms: float
    p99_ms: float

    @property
    def row(self) -> list[str]:
        times = (self.first_ms, self.p50_ms, self.p99_ms)
        verdict = "met" if self.sent <= GOAL_BYTES else "MISSED"
        return [self.path, f"{self.sent:,}", verdict, f"{self.raw:,}", *(f"{took:.1f}" for took in times)]


def paths() -> Iterator[str]:
    """The path of every page; for runs, one of each size."""
    yield from ("/ui/", "/ui/election", "/ui/workers", "/ui/pipelines", "/ui/pipelines?state=failed")
    yield from (
        "/ui/pipelines/flow-0007",
        "/ui/runs",
        "/ui/runs?state=running",
        "/ui/runs?pipeline=flow-0007",
    )
    yield from ("/ui/search?q=run-00", "/ui/help", "/ui/commands", "/ui/about")
    yield from (f"/ui/pipelines/flow-0007{part}" for part in ("/releases", "?view=table", "?view=graph"))
    for size in SIZES:
        run = f"/ui/runs/tasks-{size}"
        yield from (run, *(f"{run}?view={view}" for view in ("gantt", "events", "compare", "parameters")))
        yield f"{run}/tasks/task-0001"
        yield f"{run}/tasks/task-0001/log"


def _weigh(client: httpx.Client, path: str) -> Weighed:
    took = []
    for _ in range(1 + ASKED):
        began = time.perf_counter()
        with client.stream("GET", path) as answer:
            sent = b"".join(answer.iter_raw())
        took.append((time.perf_counter() - began) * 1000)
        if answer.status_code != 200:
            raise RuntimeError(f"{path} was answered with {answer.status_code}: {sent[:200]!r}")
    packed = answer.headers.get("content-encoding") == "gzip"
    raw = gzip.decompress(sent) if packed else sent
    return Weighed(path, len(sent), len(raw), took[0], percentile(took[1:], 0.5), percentile(took[1:], 0.99))


def _files(client: httpx.Client) -> int:
    """Bytes of scripts and style, which a browser fetches once for each release of Nimbus."""
    seen: set[str] = set()
    found = re.findall(r"/ui/static/[\w./-]+", client.get("/ui/help").text)
    while found:
        path = found.pop()
        if path not in seen:
            seen.add(path)
            text = client.get(path).text
            found += [f"{path.rpartition('/')[0]}/{name}" for name in re.findall(r'from "\./([\w.]+)"', text)]
    return sum(_sent(client, path) for path in seen)


def _sent(client: httpx.Client, path: str) -> int:
    with client.stream("GET", path) as answer:
        return sum(len(piece) for piece in answer.iter_raw())


def measure(url: str) -> str:
    """Measure all pages. Returns a table with a row for each page."""
    with httpx.Client(base_url=url, timeout=120, headers={"Accept-Encoding": "gzip"}) as client:
        rows = [_weigh(client, path).row for path in paths()]
        files = _files(client)
    heading = ["page", "bytes sent", "<= 60,000", "unpacked", "first, ms", "p50, ms", "p99, ms"]
    return f"{aligned([heading, *rows])}\nscripts, style and icon, sent once: {files:,} bytes"
