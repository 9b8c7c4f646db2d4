"""Measure 1: the cost of one event on the engine's thread, by number of live runs. The store is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.benchmark.engine.lab import Child
from tests.benchmark.engine.revision import Revision
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale
from tests.benchmark.leader.figures import summary

MEASURE = "turn"
WORKERS, TEAMS = 100, 20
_WORDS = {
    "end": "an END that opens the next task",
    "command": "a new run of ten tasks",
    "nothing": "a wake-up with nothing to do",
}
_GOAL_MS = {"end": 1.0, "nothing": 0.1}
_RATIO = 1.5


def turn(revision: Revision, place: Path, scale: Scale) -> Iterator[Row]:
    """Measure the CPU time of a turn, for each number of live runs."""
    ends: list[float] = []
    crowds = [(live, 1) for live in scale.turn_live] + [(scale.turn_live[-1], TEAMS)]
    for live, teams in crowds:
        child = Child(revision, place, "memory")
        try:
            child.ask("prepare", live=live, workers=WORKERS, teams=teams)
            took = child.ask("turns", events=scale.events)
        finally:
            child.close()
        for kind, values in took.items():
            found = summary(values)
            of_teams = f" of {teams} teams" if teams > 1 else ""
            words, note = f"{_WORDS[kind]}, {live:,} live runs{of_teams}", f"p99 {found['p99']:.3g}"
            yield Row(
                measure=MEASURE,
                words=words,
                unit="ms",
                value=found["p50"],
                goal=_GOAL_MS.get(kind),
                note=note,
            )
        if teams == 1:
            ends.append(summary(took["end"])["p50"])
    yield Row(
        measure=MEASURE,
        words=f"an END, largest / smallest p50, {scale.turn_live[0]:,} to {scale.turn_live[-1]:,} live runs",
        unit="x",
        value=max(ends) / min(ends),
        goal=_RATIO,
    )
