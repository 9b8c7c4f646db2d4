"""A run beside an earlier one: release, parameters, durations. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskRun


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTask:
    """How long a task took in both, in seconds; None: it did not succeed, or was not there."""

    name: str
    now_s: float | None
    then_s: float | None

    @property
    def change_s(self) -> float:
        """How much longer it takes; 0 where one is not known."""
        return 0.0 if self.now_s is None or self.then_s is None else self.now_s - self.then_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What differs."""

    now_s: float | None
    then_s: float | None
    parameters: tuple[tuple[str, object, object], ...]
    """Name, value now, value then; of those that differ."""
    tasks: tuple[ComparedTask, ...]
    """Those whose durations changed most first."""


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
    """From its start to its end; None: it has not ended."""
    if run.finished_at is None:
        return None
    return (run.finished_at - (run.started_at or run.created_at)).total_seconds()


def task_seconds(task: TaskRun | None) -> float | None:
    """Of the attempt that succeeded; None: none has."""
    attempt = None if task is None else task.committed
    if attempt is None or attempt.ended_at is None:
        return None
    return (attempt.ended_at - (attempt.started_at or attempt.opened_at)).total_seconds()
