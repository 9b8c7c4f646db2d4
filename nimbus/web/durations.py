"""Durations of the runs and tasks of a pipeline. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from nimbus.domain.ids import TaskName
from nimbus.domain.run import Run, RunState
from nimbus.web.comparison import run_seconds, task_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Durations of a run or a task that succeeded, in seconds."""

    name: str
    count: int
    median_s: float
    longest_s: float
    last_s: float


def durations(runs: Sequence[Run], tasks: Iterable[TaskName]) -> tuple[Durations | None, list[Durations]]:
    """Durations of the successful runs, and of each task that ever succeeded, longest first.

    Args:
        runs: Oldest first.
        tasks: The tasks to include.
    """
    succeeded = [run for run in runs if run.state is RunState.SUCCEEDED]
    of_tasks = (_of(name, runs, partial(_task_seconds, name)) for name in tasks)
    found = sorted((one for one in of_tasks if one is not None), key=lambda one: (-one.median_s, one.name))
    return _of("", succeeded, run_seconds), found


def _task_seconds(name: TaskName, run: Run) -> float | None:
    return task_seconds(run.tasks.get(name))


def _of(name: str, runs: Iterable[Run], took: Callable[[Run], float | None]) -> Durations | None:
    seconds = [one for one in map(took, runs) if one is not None]
    if not seconds:
        return None
    return Durations(
        name=name,
        count=len(seconds),
        median_s=median(seconds),
        longest_s=max(seconds),
        last_s=seconds[-1],
    )
