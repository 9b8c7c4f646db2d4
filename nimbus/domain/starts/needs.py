"""Decides whether a task may begin, from how the tasks that it needs have ended. Pure.

Each task is decided once, when all its needs are final. Laws:
`tests/nimbus/property/test_domain_lifecycle.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from types import MappingProxyType

from nimbus.domain.ids import TaskName
from nimbus.domain.pipelines.pipeline import TaskSpec, TriggerRule
from nimbus.domain.runs.task_run import TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks


class NeedEffect(Enum):
    """What the end of one need means for the dependent task."""

    GO = "go"
    SKIP = "skip"
    HINDER = "hinder"


_GO, _SKIP, _HINDER = NeedEffect.GO, NeedEffect.SKIP, NeedEffect.HINDER
_ENDINGS = (TaskState.SUCCEEDED, TaskState.SKIPPED, TaskState.FAILED, TaskState.NOT_RUN)
TABLE: Mapping[TriggerRule, Mapping[TaskState, NeedEffect]] = MappingProxyType(
    {
        rule: MappingProxyType(dict(zip(_ENDINGS, verdicts, strict=True)))
        for rule, verdicts in {
            TriggerRule.SUCCEEDED: (_GO, _SKIP, _HINDER, _HINDER),
            TriggerRule.NOT_FAILED: (_GO, _GO, _HINDER, _HINDER),
            TriggerRule.FAILED: (_SKIP, _SKIP, _GO, _GO),
            TriggerRule.DONE: (_GO, _GO, _GO, _GO),
            TriggerRule.ONE_FAILED: (_SKIP, _SKIP, _GO, _GO),
            TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS: (_GO, _SKIP, _HINDER, _HINDER),
        }.items()
    }
)
"""The effect by trigger rule and by the final state of the need."""
_OVER_NEEDS = frozenset({TriggerRule.ONE_FAILED, TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS})
"""A need with one of these does not skip its task if another need with the same one lets it go."""


def verdict(spec: TaskSpec, need: TaskRun) -> NeedEffect:
    """The verdict of one final need for the task of `spec`."""
    return NeedEffect.GO if need.left_out else TABLE[spec.trigger_rule(need.spec.name)][need.state]


def skipping(spec: TaskSpec, needs: Iterable[TaskRun]) -> list[TaskRun]:
    """Those of the final needs of the task of `spec` that skip it, if no need hinders it."""
    effects: dict[NeedEffect, list[TaskRun]] = {_GO: [], _SKIP: [], _HINDER: []}
    for need in needs:
        effects[verdict(spec, need)].append(need)
    met = {spec.trigger_rule(need.spec.name) for need in effects[_GO] if not need.left_out} & _OVER_NEEDS
    return [need for need in effects[_SKIP] if spec.trigger_rule(need.spec.name) not in met]


def state_after(spec: TaskSpec, task_of: Callable[[TaskName], TaskRun]) -> TaskState | None:
    """The state of a task that has not begun, after its needs are final; None: they are not final yet.

    WAITING: the task may begin. SKIPPED, NOT_RUN: it never begins.
    """
    states = []
    for need in reversed(spec.needs):  # tasks end in about plan order, so the last need decides soonest
        other = task_of(need)
        if not other.state.is_final:
            return None
        states.append(other)
    if any(verdict(spec, need) is NeedEffect.HINDER for need in states):
        return TaskState.NOT_RUN
    if skipping(spec, states) or not spec.is_wanted:
        return TaskState.SKIPPED
    return TaskState.WAITING


def conclude(tasks: Tasks, names: Iterable[TaskName]) -> Tasks:
    """Decide about the tasks of `names` whose needs are final, and then about their dependents.

    `names`: tasks with a need that has just become final, or all at the start of a run.
    """
    decided: dict[TaskName, TaskRun] = {}

    def task_of(name: TaskName) -> TaskRun:
        return decided.get(name) or tasks[name]

    edge = list(names)
    while edge:
        name = edge.pop()
        task = tasks[name]
        if task.state is not TaskState.WAITING or name in decided:
            continue
        state = state_after(task.spec, task_of)
        if state is not None and state.is_final:
            decided[name] = replace(task, state=state)
            edge.extend(tasks.dependents(name))
    return tasks.replaced(decided.values()) if decided else tasks


def clean_up(tasks: Tasks) -> frozenset[TaskName]:
    """Waiting tasks that may begin although their run has failed: their trigger rules can still be met.

    All other running tasks are stopped, and no other waiting task begins.
    """
    kept = {
        task.spec.name
        for task in tasks.in_order()
        if task.state is TaskState.WAITING and task.spec.is_clean_up
    }
    hindered = [name for name in kept if not _possible(tasks, name, kept)]
    while hindered:
        name = hindered.pop()
        kept.discard(name)
        hindered += [
            other for other in tasks.dependents(name) if other in kept and not _possible(tasks, other, kept)
        ]
    return frozenset(kept)


def _possible(tasks: Tasks, name: TaskName, kept: set[TaskName]) -> bool:
    spec = tasks[name].spec
    for need in spec.needs:
        other = tasks[need]
        if not other.state.is_final:
            if need in kept or (other.state is TaskState.RUNNING and other.spec.is_clean_up):
                continue  # it may end in any way
            other = replace(other, state=TaskState.NOT_RUN)
        if verdict(spec, other) is NeedEffect.HINDER:
            return False
    return True
