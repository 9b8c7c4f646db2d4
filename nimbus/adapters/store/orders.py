"""Orders in ZooKeeper. What an order needs does not grow with the tasks that its task needs.

Many needs and inputs are not stored with the order: the run's record has them, and they do not change,
because the needed tasks have ended.
"""

from __future__ import annotations

from dataclasses import replace

from nimbus.domain.lifecycle import committed_outputs
from nimbus.domain.run import Run
from nimbus.domain.workers import Assignment
from nimbus.records import ASSIGNMENT

MOST_NEEDS = 100
"""Limit of the needs that are stored with an order."""


def encode(order: Assignment) -> bytes:
    """The order's node."""
    if len(order.task.needs) > MOST_NEEDS:
        task = replace(order.task, needs=(), requirements={})
        order = replace(order, task=task, inputs={}, needs_in_run=True)
    return ASSIGNMENT.encode(order)


def completed(order: Assignment, run: Run) -> Assignment:
    """The order with its needs and inputs, which are in its run's record."""
    spec = run.tasks[order.task.name].spec
    return replace(
        order,
        task=replace(order.task, needs=spec.needs, requirements=spec.requirements),
        inputs=committed_outputs(run, spec.needs),
        needs_in_run=False,
    )
