"""Measure 4: memory of the leader's process, as its proportional share (PSS)."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmark.engine.lab import Lab
from tests.benchmark.engine.rows import Row

MEASURE = "memory"
IDLE_MIB, CROWDED_MIB = 90.0, 300.0


def memory(lab: Lab, words: str, goal: float) -> Iterator[Row]:
    """Measure the memory of the engine's process now."""
    yield Row(measure=MEASURE, words=words, unit="MiB", value=lab.engine.ask("usage")["pss_mib"], goal=goal)
