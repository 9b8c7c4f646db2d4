"""Refuses a run at its start if its record could later exceed ZooKeeper's limit, and so block the run."""

from __future__ import annotations

from collections.abc import Sequence

from nimbus.adapters.store import orders
from nimbus.adapters.store.calls import check_size
from nimbus.domain.growth import largest
from nimbus.domain.ids import AttemptId, TaskName
from nimbus.domain.orders import order_for
from nimbus.domain.pipeline import TaskSpec
from nimbus.domain.run import Run
from nimbus.domain.workers import AssignmentKind

LARGEST_NODE = 128 * 1024
_PIN_BYTES = 700
"""About the largest size of a version in an order, with the reference of its output."""


def check_growth(run: Run) -> None:
    """Check the size of the largest order of a new run. Its pages and plan have limits of their own.

    Raises:
        RecordTooLargeError: it could exceed the limit of a node.
    """
    spec = max((task.spec for task in run.tasks.in_order()), key=_weight)
    check_size(f"an order for a task of run {run.id}", _order_bytes(run, spec), LARGEST_NODE)


def _order_bytes(run: Run, spec: TaskSpec) -> int:
    """Bytes of the largest order for a task, which is written together with the record."""
    run = largest(run, (spec.name, *_stored_needs(spec)))
    task = run.tasks[spec.name]
    attempt = AttemptId(run.id, spec.name, task.tried)
    epoch = task.attempts[-1].opened_by_epoch
    pins = _PIN_BYTES * orders.MOST_NEEDS + orders.MOST_CARRIED if spec.uses else 0
    return pins + len(orders.encode(order_for(run, attempt, epoch=epoch, kind=AssignmentKind.RUN)))


def _weight(spec: TaskSpec) -> int:
    """Approximate size of a task's part of its order: its own texts, and the place of each input."""
    texts = (*spec.args, *spec.spark_conf, *spec.spark_conf.values(), *spec.dependencies, *spec.jars)
    return sum(map(len, texts)) + sum(2 * len(need) + 200 for need in _stored_needs(spec))


def _stored_needs(spec: TaskSpec) -> Sequence[TaskName]:
    return spec.needs if len(spec.needs) <= orders.MOST_NEEDS else ()
