"""Which tasks of a new run are executed, and which are reused or left out. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from nimbus.domain.data.publications import Version
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.runs.child_runs import repeated
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import Reused, Settlement, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.domain.wording import shortened

LARGEST_RESULTS = 64 * 1024
"""Limit of the reused results of one page of tasks, in bytes of JSON: a page is one node of 128 KiB."""
MAX_NAMED = 5
"""How many tasks a refusal names."""


class Scope(StrEnum):
    """How the tasks to run are chosen."""

    ALL = "all"
    FAILED = "failed"
    """Tasks that failed or did not run in the earlier run, and all their dependents."""
    ONLY = "only"
    FROM = "from"
    """The named tasks, and all their dependents."""
    UPTO = "upto"
    """The named tasks, and all that they need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The tasks to execute. A task that is not selected is reused from the earlier run, or left out."""

    scope: Scope = Scope.ALL
    tasks: tuple[TaskName, ...] = ()
    """Names for `only`, `from` and `upto`."""
    reuse: RunId | None = None
    """The earlier run. Its successful tasks replace tasks that are not selected."""
    is_rerun: bool = False
    """True: the run repeats `reuse`. False: it is another run that reuses tasks of it."""
    is_copy: bool = False
    """True: parameters, dates and priority are those of `reuse`, and with `keeps_releases` its release."""
    keeps_releases: bool = False
    """True: child runs use the releases that they had in `reuse`. False: the active releases."""
    marks: Mapping[TaskName, TaskState] = field(default_factory=dict)
    """Tasks that are set to succeeded or skipped without being run."""
    reason: str = ""

    def __str__(self) -> str:
        return " ".join((self.scope, ", ".join(self.tasks))).strip()


def entered(
    run: Run,
    selection: Selection,
    earlier: Run | None,
    results: Mapping[TaskName, Mapping[str, Any]],
    *,
    by: str,
    now: datetime,
) -> Run:
    """A new run in which the tasks that are not executed have their final states.

    Args:
        run: A run without any decided task.
        selection: The requested selection.
        earlier: The run that `selection` reuses, which has ended.
        results: Results of the earlier run, by task.
        by: The requester.
        now: The time of the decision.

    Raises:
        RefusedError: a task is unknown, no task is selected, a result that a selected task reads is missing,
            or the reused results are too large.
    """
    _check_known(run, (*selection.tasks, *selection.marks))
    chosen = chosen_tasks(run.tasks, selection, earlier) - selection.marks.keys()
    if not chosen and not selection.marks:
        raise RefusedError("nothing_selected", f"no task of run {selection.reuse} failed or did not run.")
    reads = {name for task in chosen for name in run.tasks[task].spec.reads}
    others = [
        _marked(task, selection, by, now)
        if task.spec.name in selection.marks
        else _instead(task, earlier, results.get(task.spec.name) if task.spec.name in reads else None)
        for task in run.tasks.in_order()
        if task.spec.name not in chosen
    ]
    again = [_again(run.tasks[name], chosen, selection, earlier) for name in chosen]
    by_name = {task.spec.name: task for task in (*others, *again)}
    tasks = Tasks(by_name[name] for name in run.tasks)
    _check_reads(tasks, chosen, selection)
    _check_size(tasks)
    return replace(
        run,
        tasks=tasks,
        pins=_kept_pins(run, selection, earlier, chosen),
        rerun_of=selection.reuse if selection.is_rerun else None,
        selected=shortened(str(selection)),
        note=shortened(selection.reason),
    )


def _kept_pins(
    run: Run, selection: Selection, earlier: Run | None, chosen: Container[TaskName]
) -> Mapping[str, tuple[Version, ...]]:
    """A run that repeats a part of an earlier one reads the same versions; a whole one pins again.

    With `take: new` a whole one reads the same, too, which is no longer new if the earlier one succeeded.
    What its own child runs publish is pinned again if any of them are repeated.
    """
    if earlier is None:
        return {}
    is_same = run.parameters == earlier.parameters  # keys may be templates, which are rendered later
    before = {replace(read, key="") if is_same else read for read in earlier.reads}
    return {
        read.name: earlier.pins[read.name]
        for read in run.reads
        if read.name in earlier.pins
        and (read.new or selection.scope is not Scope.ALL)
        and read.of not in chosen
        and (replace(read, key="") if is_same else read) in before
    }


def _check_known(run: Run, names: Iterable[TaskName]) -> None:
    unknown = sorted(name for name in names if name not in run.tasks)
    if unknown:
        raise RefusedError(
            "unknown_task",
            f"release {run.release[:12]} of {run.pipeline} has no task {', '.join(unknown[:MAX_NAMED])}.",
        )


def chosen_tasks(tasks: Tasks, selection: Selection, earlier: Run | None) -> set[TaskName]:
    """The selected tasks, before `marks` are applied."""
    match selection.scope:
        case Scope.ALL:
            return set(tasks)
        case Scope.FAILED:
            failed = {name for name in tasks if _is_undone(name, earlier)} - selection.marks.keys()
            return _reached(failed, tasks.dependents)
        case Scope.ONLY:
            return set(selection.tasks)
        case Scope.FROM:
            return _reached(selection.tasks, tasks.dependents)
        case Scope.UPTO:
            return _reached(selection.tasks, lambda name: tasks[name].spec.needs)


def _is_undone(name: TaskName, earlier: Run | None) -> bool:
    was = None if earlier is None else earlier.tasks.get(name)
    return was is None or was.state in (TaskState.FAILED, TaskState.NOT_RUN)


def _reached(names: Iterable[TaskName], next_of: Callable[[TaskName], Iterable[TaskName]]) -> set[TaskName]:
    """`names`, and all tasks that `next_of` reaches from them."""
    reached: set[TaskName] = set()
    edge = list(names)
    while edge:
        name = edge.pop()
        if name not in reached:
            reached.add(name)
            edge.extend(next_of(name))
    return reached


def _marked(task: TaskRun, selection: Selection, by: str, now: datetime) -> TaskRun:
    said = Settlement(at=now, by=shortened(by), reason=shortened(selection.reason))
    return replace(task, state=selection.marks[task.spec.name], settled=said)


def _instead(task: TaskRun, earlier: Run | None, result: Mapping[str, Any] | None) -> TaskRun:
    """The final state of a task that is not selected: reused, skipped or left out."""
    was = None if earlier is None else earlier.tasks.get(task.spec.name)
    if was is not None and was.state is TaskState.SKIPPED:
        return replace(task, state=TaskState.SKIPPED, left_out=was.left_out)
    if earlier is None or was is None or was.state is not TaskState.SUCCEEDED:
        return replace(task, state=TaskState.SKIPPED, left_out=True)
    origin = was.reused or Reused(run=earlier.id, attempt=was.committed)
    return replace(task, state=TaskState.SUCCEEDED, reused=replace(origin, result=result))


def _again(task: TaskRun, chosen: set[TaskName], selection: Selection, earlier: Run | None) -> TaskRun:
    """A selected task. It may repeat only those of its child runs that did not succeed."""
    was = None if earlier is None else earlier.tasks.get(task.spec.name)
    same_needs = chosen.isdisjoint((*task.spec.needs, *task.spec.reads))
    return repeated(
        task,
        was,
        keeps_release=selection.keeps_releases,
        keeps_items=selection.scope is Scope.FAILED and same_needs,
    )


def _check_reads(tasks: Tasks, chosen: set[TaskName], selection: Selection) -> None:
    """Raise RefusedError if a selected task reads a result that is missing."""
    for name in sorted(chosen):
        for read in tasks[name].spec.reads:
            source = tasks[read]
            if source.left_out:
                raise RefusedError(
                    "needs_reuse",
                    f"task {name} reads the result of {read}, which is not selected: select it, "
                    "or name a run in which it succeeded (--reuse RUN).",
                )
            if source.reused is not None and source.reused.result is None and _gave(source.reused):
                raise RefusedError(
                    "result_gone",
                    f"task {name} reads the result of {read}, which run {selection.reuse} no longer has: "
                    f"select {read}, too.",
                )


def _check_size(tasks: Tasks) -> None:
    for page in tasks.pages:
        results = (task.reused.result for task in page if task.reused is not None)
        size = sum(len(json.dumps(result)) for result in results if result is not None)
        if size > LARGEST_RESULTS:
            raise RefusedError(
                "results_too_large",
                f"the results that selected tasks read, of {page[0].spec.name} to {page[-1].spec.name}, "
                f"have {size} bytes; {LARGEST_RESULTS} is the most: select some of them, too.",
            )


def _gave(reused: Reused) -> bool:
    return reused.attempt is not None and reused.attempt.has_result
