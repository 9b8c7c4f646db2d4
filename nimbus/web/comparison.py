"""Comparison of a run with an earlier one: release, parameters, durations. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskRun


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
