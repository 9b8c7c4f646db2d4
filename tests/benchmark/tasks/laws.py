"""Checks after processes were killed: no task is lost, committed twice, or started twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.benchmark.tasks.marks import Mark

Outcomes = Mapping[str, Sequence[str | None]]
"""The outcomes of the attempts of each task of a run, by the task's name."""


def committed_once(where: str, outcomes: Outcomes, tasks: int) -> Iterator[str]:
    """Yield a fault for each task without exactly one succeeded attempt, which must be its last."""
    if len(outcomes) != tasks:
        yield f"{where}: {len(outcomes)} tasks, not {tasks}"
    for task, found in outcomes.items():
        if list(found).count("succeeded") != 1 or found[-1] != "succeeded":
            yield f"{where}: attempts of {task} are {list(found)}"


def started_once(marks: Iterable[Mark], tasks: int) -> Iterator[str]:
    """Yield faults: attempts whose code started twice, tasks whose code never ended."""
    marks = list(marks)
    starts = Counter(mark.key for mark in marks if mark.what == "start")
    yield from (f"code of {key} started {times} times" for key, times in starts.items() if times > 1)
    ended = {(mark.run, mark.task) for mark in marks if mark.what == "end"}
    if len(ended) != tasks:
        yield f"the code of {len(ended)} tasks ended, not of {tasks}"


def none_left(kinds: Iterable[str], most: Mapping[str, int]) -> Iterator[str]:
    """Yield a fault for each kind with more processes than `most` allows; other kinds may have none."""
    for kind, count in Counter(kinds).items():
        if count > most.get(kind, 0):
            yield f"{count} processes of the kind {kind} are there, not {most.get(kind, 0)}"
