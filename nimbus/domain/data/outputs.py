"""What tasks gave: files of committed outputs, as schedulers list them, and results. Pure.

Results are kept in the ENDs of attempts, and later in history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nimbus.domain.attempts.slots import Slots
from nimbus.domain.data.datasets import versions_of
from nimbus.domain.data.publications import Table
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import AttemptId, RunId, TaskName
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskRun


class OutputsNotHereError(NimbusError):
    """This scheduler has no place of outputs in its configuration, or cannot read it."""

    code = "outputs_not_here"
    exit_code = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """One file of an output."""

    path: str
    """Relative to the output, with `/`."""
    size_bytes: int
    sha256: str = ""
    """Empty: the output has no manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A part of the files of an output, in the order of `file_order`."""

    files: Sequence[ListedFile] = ()
    truncated: bool = False
    """True: more files follow."""
    total_files: int | None = None
    """Of the whole output; None: it was not read to its end."""
    total_bytes: int | None = None


def file_order(path: str) -> tuple[tuple[bool, str], ...]:
    """The order of a walk: the files of a folder by name, then its folders by name."""
    *folders, name = path.split("/")
    return (*((True, folder) for folder in folders), (False, name))


def listing(listed: Iterable[ListedFile], limit: int, after: str = "") -> Listing:
    """The first `limit` files after a path. `listed` has the order of `file_order`."""
    files: list[ListedFile] = []
    count = size = 0
    last = file_order(after) if after else None
    for file in listed:
        count, size = count + 1, size + file.size_bytes
        if last is not None and file_order(file.path) <= last:
            continue
        if len(files) == limit:
            return Listing(files=files, truncated=True)
        files.append(file)
    return Listing(files=files, total_files=count, total_bytes=size)


Results = Mapping[TaskName, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResults:
    """The results of a run's tasks, and the columns of what they published, as kept in history."""

    results: Results
    tables: Mapping[TaskName, Table] = field(default_factory=dict)


def has_result(task: TaskRun) -> bool:
    """True when a task has a result, from its own run or from the run that it is reused from."""
    reused = task.reused is not None and task.reused.result is not None
    return reused or any(attempt.has_result for attempt in task.attempts)


def committed_results(
    run: Run,
    tasks: Iterable[TaskName],
    read_slots: Callable[[Iterable[AttemptId]], Mapping[AttemptId, Slots]],
) -> Results:
    """Results of tasks of a run. Tasks that did not succeed or gave no result are left out."""
    names = tuple(tasks)
    given = {
        AttemptId(run.id, name, attempt.number): name
        for name in names
        for attempt in run.tasks[name].attempts
        if attempt.has_result
    }
    results = read_slots(given) if given else {}
    reused = {
        name: origin.result
        for name in names
        if (origin := run.tasks[name].reused) is not None and origin.result is not None
    }
    return reused | {
        given[attempt]: slots.end.result
        for attempt, slots in results.items()
        if slots.end is not None and slots.end.result is not None
    }


def kept_results(
    run: Run,
    tasks: Iterable[TaskName],
    read_slots: Callable[[Iterable[AttemptId]], Mapping[AttemptId, Slots]],
    read_history: Callable[[RunId], TaskResults],
) -> Results:
    """As `committed_results`; results of an archived run, whose attempts are removed, come from history."""
    names = [name for name in tasks if has_result(run.tasks[name])]
    results = committed_results(run, names, read_slots)
    if len(results) == len(names):
        return results
    kept = read_history(run.id).results
    return {**{name: kept[name] for name in names if name in kept}, **results}


def given(
    run: Run,
    read_slots: Callable[[Iterable[AttemptId]], Mapping[AttemptId, Slots]],
    read_history: Callable[[RunId], TaskResults],
) -> TaskResults:
    """All that the tasks of an ended run gave: from their ENDs, or from history, if these are removed."""
    results = kept_results(run, run.tasks, read_slots, read_history)
    sources = {version.source for _, version in versions_of(run) if version.source.run == run.id}
    ends = {attempt.task: slots.end for attempt, slots in (read_slots(sources) if sources else {}).items()}
    tables = {task: end.table for task, end in ends.items() if end is not None and end.table is not None}
    if any(ends.get(source.task) is None for source in sources):
        tables = {**read_history(run.id).tables, **tables}
    return TaskResults(results=results, tables=tables)
