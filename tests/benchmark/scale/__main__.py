"""Measures pages and lists at the promised sizes: `python -m tests.benchmark.scale [measure ...]`.

The application answers in this process. So the processor time contains it, its adapters and its client, but
no S3 server.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from prometheus_client import CollectorRegistry
from starlette.testclient import TestClient

from nimbus.adapters.s3_history import S3History
from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.web.app import add_pages
from tests.benchmark.leader.table import aligned
from tests.benchmark.scale import worlds
from tests.benchmark.scale.s3_server import Objects, Server
from tests.nimbus.integration.conftest import World

ASKED, BYTES = 5, 60_000
_API = "/api/v1"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _measure(client: TestClient, path: str, goal_ms: float, server: Server | None = None) -> list[str]:
    """A row: bytes; clock and processor time of the first answer, and medians of the others."""
    took, used, before = [], [], server.requests if server else 0
    for _ in range(ASKED):
        clock, processor = time.perf_counter(), time.process_time()
        with client.stream("GET", path) as answer:
            sent = b"".join(answer.iter_raw())
        took.append((time.perf_counter() - clock) * 1e3)
        used.append((time.process_time() - processor) * 1e3)
        if answer.status_code != 200:
            raise RuntimeError(f"{path} was answered with {answer.status_code}: {sent[:300]!r}")
    asked = f"{(server.requests - before - 1) / ASKED:.0f}" if server else ""
    median = sorted(took[1:])[ASKED // 2]
    packed = sent if answer.headers.get("content-encoding") == "gzip" else gzip.compress(sent)
    bad = [word for word, wrong in (("ms", median > goal_ms), ("bytes", len(packed) > BYTES)) if wrong]
    times = (took[0], used[0], median, sorted(used[1:])[ASKED // 2])
    return [
        path,
        f"{len(packed):,}",
        *(f"{one:.0f}" for one in times),
        asked,
        f"{goal_ms:.0f}",
        ", ".join(bad) or "met",
    ]


@contextmanager
def _client(world: World, server: Server | None = None) -> Iterator[TestClient]:
    services = replace(world.services(), metrics=CollectorRegistry())
    if server is not None:
        services = replace(services, history=S3History(server.store))
    gc.collect()
    gc.freeze()  # as a scheduler does after its start
    app = create_app(services)
    add_pages(app, services)
    ApiServer(app).warm_up()  # likewise
    with TestClient(app, headers={"Accept-Encoding": "gzip"}, base_url="http://127.0.0.1:8700") as client:
        yield client


def _table(title: str, rows: list[list[str]]) -> None:
    heading = ["page", "bytes", "first, ms", "its CPU", "p50, ms", "its CPU", "of S3", "goal, ms", ""]
    _say(f"\n{title}\n{aligned([heading, *rows])}")


def _pages(title: str, world: World, paths: list[str], goal_ms: float) -> None:
    with _client(world) as client:
        _table(title, [_measure(client, path, goal_ms) for path in paths])


def pipelines(count: int) -> None:
    paths = ["/ui/", "/ui/pipelines", "/ui/pipelines?state=failed", "/ui/runs", "/ui/pipelines/flow-00007"]
    title = f"{count:,} pipelines in the catalog"
    _pages(title, worlds.with_pipelines(count), [*paths, f"{_API}/pipelines", f"{_API}/status"], 200)


def wide(tasks: int) -> None:
    paths = ["/ui/runs"]
    for name, task in (("fan", "part-0007"), ("layers", "task-0007")):
        run, flow = f"/ui/runs/{name}-1", f"/ui/pipelines/{name}"
        paths += [
            run,
            *(f"{run}?view={view}" for view in ("gantt", "events", "compare", "parameters", "data")),
        ]
        paths += [f"{run}?state=failed", f"{run}/tasks/{task}", f"{run}/tasks/{task}/log"]
        paths += [flow, *(f"{flow}?view={view}" for view in ("table", "graph", "durations"))]
    paths += ["/ui/runs/fan-1/tasks/join", "/ui/runs/fan-1/tasks/split"]
    _pages(f"two runs of {tasks:,} tasks", worlds.with_wide_runs(tasks), paths, 300)


def datasets() -> None:
    paths = ["/ui/datasets", "/ui/datasets/d7-7", "/ui/lineage", "/ui/pipelines/p7", "/ui/"]
    title = "10,000 datasets, each with a full record"
    _pages(title, worlds.with_datasets(), [*paths, f"{_API}/datasets", f"{_API}/datasets/d7-7"], 300)


def history(pipelines: int, days: int, file: Path, latency_s: float) -> None:
    world, stored = worlds.with_history(pipelines, days)
    if not file.exists():
        began = time.monotonic()
        worlds.fill(Objects(file), pipelines, days)
        _say(f"{pipelines * days:,} runs written in {time.monotonic() - began:.0f} s")
    one = "flow-00007"
    paths = [
        f"{_API}/runs", f"{_API}/runs?limit=20", f"{_API}/runs?pipeline={one}",
        *(f"{_API}/runs?state={state}" for state in ("succeeded", "failed", "stopped", "running")),
        f"{_API}/runs?pipeline={one}&state=failed",
        f"{_API}/runs?to=2025-09-01", f"{_API}/runs?to=2025-09-01&state=failed",
        f"{_API}/runs?pipeline={one}&from=2025-08-01&to=2025-09-01",
        f"{_API}/pipelines/{one}/intervals?from=2025-03-02", f"{_API}/pipelines/{one}/intervals",
        "/ui/", "/ui/pipelines", "/ui/runs", "/ui/runs?state=failed", "/ui/runs?to=2025-09-01",
        f"/ui/runs?pipeline={one}",
        f"/ui/pipelines/{one}", f"/ui/pipelines/{one}?view=durations",
    ]  # fmt: skip
    for latency in dict.fromkeys((0.0, latency_s)):
        server = Server(file, latency)
        with _client(world, server) as client:
            key = client.get(f"{_API}/runs").json()["runs"][7]["id"]
            cursor = client.get(f"{_API}/runs?limit=50").json()["next_cursor"]
            more = [f"{_API}/runs?cursor={cursor}", f"{_API}/runs/{key}", f"/ui/runs/{key}?view=compare"]
            rows = [_measure(client, path, 500, server) for path in (*paths, *more)]
        server.stop()
        _table(f"a history of {pipelines * days:,} runs, S3 answers after {latency * 1e3:.0f} ms", rows)
    _say(f"their intervals in ZooKeeper: {stored / 1e6:.1f} MB; nothing else of these runs is there")


MEASURES = ("pipelines", "wide", "datasets", "history")


def main() -> None:
    """Print a table for each measure."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.scale", description=__doc__)
    add = parser.add_argument
    add("measures", nargs="*", metavar="measure", help=f"of {', '.join(MEASURES)}; default: all")
    add("--pipelines", type=int, default=10_000, help="in the catalog")
    add("--tasks", type=int, default=10_000, help="of each wide run")
    add("--daily", type=int, default=1_000, help="pipelines with a history")
    add("--days", type=int, default=365)
    add("--latency-ms", type=float, default=15, help="of S3; measured without it, too")
    add("--file", type=Path, help="keep the history here, and use it again")
    asked = parser.parse_args()
    if unknown := set(asked.measures) - set(MEASURES):
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(MEASURES)}")
    chosen = asked.measures or MEASURES
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    if "pipelines" in chosen:
        pipelines(asked.pipelines)
    if "wide" in chosen:
        wide(asked.tasks)
    if "datasets" in chosen:
        datasets()
    if "history" in chosen:
        with TemporaryDirectory() as folder:
            file = asked.file or Path(folder) / "history.sqlite"
            history(asked.daily, asked.days, file, asked.latency_ms / 1e3)


if __name__ == "__main__":
    main()
