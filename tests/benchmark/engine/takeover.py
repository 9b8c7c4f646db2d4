"""Measure 3: from `kill -9` of a leader until the first decision of the next, and until all is adopted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from tests.benchmark.engine.lab import Lab
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale

MEASURE = "takeover"
_MAX_ENDED = 100
"""Limit of the attempts that end while no scheduler leads: a tenth of all. A leader that has processed them
has read every attempt."""
_CLOSED = "attempt_closed"
_POLL_S = 0.05


@dataclass(frozen=True)
class Goals:
    """Limits in seconds after the death of the leader."""

    first_s: float
    all_s: float


CROWDED = Goals(1.0, 1.0)
SMALL = Goals(0.1, 0.1)


def takeover(
    lab: Lab, scale: Scale, live: int, pipelines: int, goals: Goals, measure: str = MEASURE
) -> Iterator[Row]:
    """Kill the leader of a lab with `live` held attempts."""
    ended = min(_MAX_ENDED, max(1, live // 10))
    killed_ns = lab.kill_leader(lambda: lab.workers.ask("end_held", count=ended), scale.patience_s)
    until = time.monotonic() + scale.patience_s
    while (trace := lab.engine.ask("trace"))["decisions"].get(_CLOSED, [0])[0] < ended or not trace[
        "recovered_ns"
    ]:
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
        took_s = (at_ns - killed_ns) / 1e9
        yield Row(
            measure=measure, words=f"{words}, {of}", unit="s", value=took_s, goal=goal,
            note=f"elected after {(trace['elected_ns'] - killed_ns) / 1e9:.3g} s, CPU {trace['cpu_s']:.3g} s",
        )  # fmt: skip
