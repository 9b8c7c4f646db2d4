"""Durations of runs and tasks: of a pipeline, and of a run in comparison with an earlier one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskRun
from nimbus.web.pipeline.history import Cell, Column, Past


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTask:
    """Durations of a task in both runs, in seconds; None: it did not succeed, or does not exist."""

    name: str
    now_s: float | None
    then_s: float | None

    @property
    def change_s(self) -> float:
        """Difference of the durations; 0 if one is not known."""
        return 0.0 if self.now_s is None or self.then_s is None else self.now_s - self.then_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The differences of two runs."""

    now_s: float | None
    then_s: float | None
    parameters: tuple[tuple[str, object, object], ...]
    """Name, new value and old value of the parameters that differ."""
    tasks: tuple[ComparedTask, ...]
    """Tasks, with the largest change of duration first."""


def compare(run: Run, earlier: Run) -> Comparison:
    """Compare a run with an earlier one."""
    names = {**run.parameters, **earlier.parameters}
    parameters = ((name, run.parameters.get(name), earlier.parameters.get(name)) for name in sorted(names))
    tasks = [
        ComparedTask(
            name=name, now_s=task_seconds(run.tasks.get(name)), then_s=task_seconds(earlier.tasks.get(name))
        )
        for name in {**dict.fromkeys(run.tasks), **dict.fromkeys(earlier.tasks)}
    ]
    return Comparison(
        now_s=run_seconds(run),
        then_s=run_seconds(earlier),
        parameters=tuple(one for one in parameters if one[1] != one[2]),
        tasks=tuple(sorted(tasks, key=lambda one: (-abs(one.change_s), one.name))),
    )


def run_seconds(run: Run) -> float | None:
    """Seconds from its start to its end; None: it has not ended."""
    if run.finished_at is None:
        return None
    return (run.finished_at - (run.started_at or run.created_at)).total_seconds()


def task_seconds(task: TaskRun | None) -> float | None:
    """Seconds of the successful attempt; None: there is none."""
    attempt = None if task is None else task.committed
    if attempt is None or attempt.ended_at is None:
        return None
    return (attempt.ended_at - (attempt.started_at or attempt.opened_at)).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Durations of a run or a task that succeeded, in seconds."""

    name: str
    count: int
    median_s: float
    longest_s: float
    last_s: float
    cells: tuple[tuple[Column, Cell], ...]
    """Those that have ended, also the failed ones, oldest first."""


def durations(past: Past) -> tuple[Durations | None, list[Durations]]:
    """Durations of the runs, and of each task that ever succeeded, longest first."""
    whole = _of("", ((one, one.whole) for one in past.columns))
    of_tasks = (
        _of(name, ((one, one.tasks[name]) for one in past.columns if name in one.tasks)) for name in past.rows
    )
    found = sorted((one for one in of_tasks if one is not None), key=lambda one: (-one.median_s, one.name))
    return whole, found


def _of(name: str, cells: Iterable[tuple[Column, Cell]]) -> Durations | None:
    ended = tuple((column, cell) for column, cell in cells if cell.took_s is not None)
    seconds = [cell.took_s for _, cell in ended if cell.took_s is not None and cell.state == "succeeded"]
    if not seconds:
        return None
    return Durations(
        name=name,
        count=len(seconds),
        median_s=median(seconds),
        longest_s=max(seconds),
        last_s=seconds[-1],
        cells=ended,
    )
