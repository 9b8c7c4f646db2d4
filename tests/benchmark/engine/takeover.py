"""Measure 3: how long a new leader takes until its first decision, and until it has adopted all attempts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.benchmark.engine.lab import Lab
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale

MEASURE = "takeover"
_ENDED = 100
"""Attempts that end while no scheduler leads. A leader that has processed them has read every attempt."""
_CLOSED = "attempt_closed"
_POLL_S = 0.05


@dataclass(frozen=True)
class Goals:
    """Limits in seconds after `elected`."""

    first_s: float
    all_s: float


CROWDED = Goals(1.0, 6.0)
SMALL = Goals(0.15, 0.15)


def takeover(lab: Lab, scale: Scale, live: int, pipelines: int, goals: Goals) -> Iterator[Row]:
    """Replace the leader of a lab with `live` runs, each with one held attempt."""
    lab.engine.close()
    ended = lab.workers.ask("end_held", count=min(_ENDED, live))
    lab.succeed(scale.patience_s)
    until = time.monotonic() + scale.patience_s
    while (trace := lab.engine.ask("trace"))["decisions"].get(_CLOSED, [0])[0] < ended:
        if time.monotonic() > until:
            raise TimeoutError(f"the new leader has not processed {ended} ENDs: {trace}")
        time.sleep(_POLL_S)
    first_ns = min(first for _, first, _ in trace["decisions"].values())
    last_ns = max(trace["decisions"][_CLOSED][2], trace["recovered_ns"])
    of = f"{pipelines:,} pipelines, {live:,} open attempts"
    for words, at_ns, goal in (
        ("until the first decision", first_ns, goals.first_s),
        ("until all are adopted", last_ns, goals.all_s),
    ):
        took_s = (at_ns - trace["elected_ns"]) / 1e9
        yield Row(measure=MEASURE, words=f"{words}, {of}", unit="s", value=took_s, goal=goal)
