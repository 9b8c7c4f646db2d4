"""Measure 4: what the leader's process takes while nothing changes: memory (PSS) and processor time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tests.benchmark.engine.lab import Lab
from tests.benchmark.engine.rows import Row

MEASURE = "memory"
IDLE_MIB, CROWDED_MIB = 90.0, 300.0
_IDLE_PERCENT, _REST_S = 1.0, 10.0
"""Limit in percent of a core, and for how long it is measured."""
_QUIET_S, _MAX_TURNS = 5.0, 2
"""An engine without events makes so few turns in this time."""


def memory(lab: Lab, words: str, goal: float) -> Iterator[Row]:
    """Measure the memory of the engine's process now."""
    yield Row(measure=MEASURE, words=words, unit="MiB", value=lab.engine.ask("usage")["pss_mib"], goal=goal)


def rest(lab: Lab, words: str, within_s: float) -> Iterator[Row]:
    """Measure the processor time of the engine's process while nothing changes.

    The last claims and timers of new attempts bring turns for some seconds, which must be over first.
    """
    _await_rest(lab, within_s)
    before_s = lab.engine.ask("usage")["cpu_s"]
    time.sleep(_REST_S)
    percent = (lab.engine.ask("usage")["cpu_s"] - before_s) / _REST_S * 100
    yield Row(measure=MEASURE, words=f"of a core, {words}", unit="%", value=percent, goal=_IDLE_PERCENT)


def _await_rest(lab: Lab, within_s: float) -> None:
    until, turns = time.monotonic() + within_s, _MAX_TURNS + 1
    lab.engine.ask("turns_ms")  # a new count
    while turns > _MAX_TURNS:
        if time.monotonic() > until:
            raise TimeoutError(f"the engine made {turns} turns within {_QUIET_S} s, although nothing changes")
        time.sleep(_QUIET_S)
        turns = len(lab.engine.ask("turns_ms"))
