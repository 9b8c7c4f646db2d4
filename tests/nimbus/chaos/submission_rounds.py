"""The record of rounds at the eight points of a submission: a line of JSON for each, in a file that grows.

    python -m tests.nimbus.chaos.submission_rounds FILE

prints the table of all rounds in a file.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

VICTIMS = SCHEDULER, WORKER = "scheduler", "worker"
PASSED = "passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round."""

    cluster: str
    point: str
    victim: str
    attempts: int
    executions: int
    """Executions of user code, in all attempts."""
    took_s: float
    verdict: str
    """`PASSED`, or the fault."""


def read_rounds(file: Path) -> list[Round]:
    """All rounds of a file; none if there is no file."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Round(**json.loads(line)) for line in lines]


def missing(
    rounds: Iterable[Round], cluster: str, points: Sequence[str], goal: int
) -> Iterator[tuple[str, str]]:
    """Points and victims of the missing rounds, until each cell has `goal` of them; the fewest first."""
    played = Counter((one.point, one.victim) for one in rounds if one.cluster == cluster)
    for count in range(goal):
        for point in points:
            yield from ((point, victim) for victim in VICTIMS if played[point, victim] <= count)


def table(rounds: Iterable[Round]) -> list[str]:
    """One line for each point. See `_cell` for the cells."""
    cells: dict[str, dict[tuple[str, str], list[Round]]] = {}
    for one in rounds:
        cells.setdefault(one.point, {}).setdefault((one.cluster, one.victim), []).append(one)
    clusters = sorted({cluster for found in cells.values() for cluster, _ in found})
    lines = [f"| point | {' | '.join(clusters)} |", f"|{' --- |' * (len(clusters) + 1)}"]
    for point, found in cells.items():
        told = ("; ".join(_cell(found.get((cluster, one), [])) for one in VICTIMS) for cluster in clusters)
        lines.append(f"| {point} | {' | '.join(told)} |")
    return lines


def _cell(ones: Sequence[Round]) -> str:
    """Number of rounds, and in brackets the attempts beyond the first, and the rounds that failed."""
    told = []
    if again := sum(max(0, one.attempts - 1) for one in ones):
        told.append(f"{again} again")
    if failed := sum(one.verdict != PASSED for one in ones):
        told.append(f"{failed} not passed")
    return f"{len(ones)} ({', '.join(told)})" if told else str(len(ones))


if __name__ == "__main__":
    sys.stdout.write("\n".join([*table(read_rounds(Path(sys.argv[1]))), ""]))
