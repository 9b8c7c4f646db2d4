"""Measure 8: the API with many live runs, over HTTP on loopback."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import httpx

from tests.benchmark.engine.lab import Lab
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale
from tests.benchmark.leader.figures import summary

MEASURE = "api"
_ONE_MS, _PAGE_MS = 10.0, 50.0
_PAGE = 50
_TIMEOUT_S = 120.0
_LONGEST_S = 60.0
"""Requests of one kind are not repeated after this time."""


def api(lab: Lab, scale: Scale, runs: Sequence[str]) -> Iterator[Row]:
    """Measure one run, a page of the list, a page of one state, and the counts of all runs by state."""
    child = lab.child("api")
    beside = f"{len(runs):,} live runs"
    with httpx.Client(base_url=f"{child.ask('url')}/api/v1", timeout=_TIMEOUT_S) as client:
        step = max(1, len(runs) // scale.requests)
        ones = _took_ms(client, [f"/runs/{run}" for run in runs[::step]][: scale.requests])
        pages = _took_ms(client, [f"/runs?limit={_PAGE}"] * scale.requests)
        stopping = _took_ms(client, [f"/runs?limit={_PAGE}&state=stopping"] * scale.requests)
        status = _took_ms(client, ["/status"] * scale.requests)
    child.close()
    for words, took, goal in (
        ("one run", ones, _ONE_MS),
        (f"a page of {_PAGE}", pages, _PAGE_MS),
        ("a page of a state that no run has", stopping, _PAGE_MS),
        ("status", status, None),
    ):
        found = summary(took)
        note = f"p99 {found['p99']:.3g}, {len(took)} requests"
        yield Row(
            measure=MEASURE,
            words=f"{words}, p50, {beside}",
            unit="ms",
            value=found["p50"],
            goal=goal,
            note=note,
        )


def _took_ms(client: httpx.Client, paths: Sequence[str]) -> list[float]:
    client.get(paths[0]).raise_for_status()  # fills the caches
    took, until = [], time.monotonic() + _LONGEST_S
    for path in paths:
        began = time.perf_counter()
        client.get(path).raise_for_status()
        took.append((time.perf_counter() - began) * 1e3)
        if time.monotonic() > until:
            break
    return took
