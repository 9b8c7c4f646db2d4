"""Orders in ZooKeeper. What an order needs does not grow with the tasks that its task needs.

Many needs and inputs, and those of child runs, are not stored with the order: the run's record has them, and
they do not change, because the needed tasks have ended, and pins stay.
"""

from __future__ import annotations

from dataclasses import replace

from nimbus.domain.orders import inputs_of, pins_of
from nimbus.domain.run import Run
from nimbus.domain.workers import Assignment
from nimbus.records import ASSIGNMENT

MOST_NEEDS = 100
"""Limit of the needs, and of the inputs, that are stored with an order."""

MOST_CARRIED = 16 * 1024
"""Limit of the URIs and values of data from outside that are stored with an order, in bytes."""


def encode(order: Assignment) -> bytes:
    """The order's node."""
    pinned = [version for versions in order.pins.values() for version in versions]
    is_large = any(version.item is not None or version.value for version in pinned)
    is_large = is_large or sum(version.carried_bytes for version in pinned) > MOST_CARRIED
    if is_large or max(len(order.task.needs), len(order.inputs), len(pinned)) > MOST_NEEDS:
        task = replace(order.task, needs=(), requirements={})
        order = replace(order, task=task, inputs={}, pins={}, needs_in_run=True)
    return ASSIGNMENT.encode(order)


def completed(order: Assignment, run: Run) -> Assignment:
    """The order with its needs and inputs, which are in its run's record."""
    spec = run.tasks[order.task.name].spec
    return replace(
        order,
        task=replace(order.task, needs=spec.needs, requirements=spec.requirements),
        inputs=inputs_of(run, spec),
        pins=pins_of(run, spec),
        needs_in_run=False,
    )
