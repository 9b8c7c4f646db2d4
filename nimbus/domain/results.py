"""Results of tasks: in the ENDs of the attempts that gave them, later in history."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.run import Run
from nimbus.domain.slots import Slots
from nimbus.domain.task_run import TaskRun

Results = Mapping[TaskName, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResults:
    """What the tasks of a run gave, as history keeps it."""

    results: Results


def has_result(task: TaskRun) -> bool:
    """Whether a task gave one, in its run or in the run that it is reused from."""
    reused = task.reused is not None and task.reused.result is not None
    return reused or any(attempt.has_result for attempt in task.attempts)


def committed_results(
    run: Run,
    tasks: Iterable[TaskName],
    read_slots: Callable[[Iterable[AttemptId]], Mapping[AttemptId, Slots]],
) -> Results:
    """What tasks of a run gave. One that did not succeed, or gave nothing, is not in it."""
    names = tuple(tasks)
    given = {
        AttemptId(run.id, name, attempt.number): name
        for name in names
        for attempt in run.tasks[name].attempts
        if attempt.has_result
    }
    found = read_slots(given) if given else {}
    reused = {
        name: origin.result
        for name in names
        if (origin := run.tasks[name].reused) is not None and origin.result is not None
    }
    return reused | {
        given[attempt]: slots.end.result
        for attempt, slots in found.items()
        if slots.end is not None and slots.end.result is not None
    }


def kept_results(
    run: Run,
    tasks: Iterable[TaskName],
    read_slots: Callable[[Iterable[AttemptId]], Mapping[AttemptId, Slots]],
    read_history: Callable[[RunId], Results],
) -> Results:
    """As `committed_results`; of attempts that are removed, since their run is archived, from history."""
    names = [name for name in tasks if has_result(run.tasks[name])]
    found = committed_results(run, names, read_slots)
    if len(found) == len(names):
        return found
    kept = read_history(run.id)
    return {**{name: kept[name] for name in names if name in kept}, **found}
