"""Refuses a run at its start if ZooKeeper might refuse its record later: then nobody could finish it."""

from __future__ import annotations

from nimbus import records
from nimbus.adapters.zookeeper.calls import LARGEST_REQUEST, check_size
from nimbus.domain.growth import MOST_ATTEMPTS, largest
from nimbus.domain.ids import AttemptId
from nimbus.domain.orders import order_for
from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskRun
from nimbus.domain.workers import AssignmentKind

LARGEST_NODE = 128 * 1024
BESIDE = 16 * 1024
"""Bytes of one transaction beside the run's record and an order: paths, CLAIM, END."""


def check_growth(run: Run) -> None:
    """Count what the largest transaction about a new run can hold.

    Raises:
        RecordTooLargeError: it could be more than ZooKeeper takes.
    """
    order = _order_bytes(largest(run))
    if run.layout == 1:
        size = grown_bytes(run) + order + BESIDE
        check_size(f"run {run.id}, once its {len(run.tasks)} tasks were tried,", size, LARGEST_REQUEST)
    else:  # its pages are bounded by the attempts that they keep, its plan when it is encoded
        check_size(f"an order for a task of run {run.id}", order, LARGEST_NODE)


def grown_bytes(run: Run) -> int:
    """Bytes of the largest record that a run of layout 1 can become, without making it."""
    least, more = (len(records.RUN.encode(largest(run, extra=count))) for count in (0, 1))
    return least + max(0, MOST_ATTEMPTS - len(run.tasks)) * (more - least)


def _order_bytes(run: Run) -> int:
    """Bytes of the largest order for one of its tasks, which is written together with the record."""
    task = max(run.tasks.values(), key=_weight)
    attempt = AttemptId(run.id, task.spec.name, task.tried)
    epoch = task.attempts[-1].opened_by_epoch
    return len(records.ASSIGNMENT.encode(order_for(run, attempt, epoch=epoch, kind=AssignmentKind.RUN)))


def _weight(task: TaskRun) -> int:
    """About what a task adds to its order: its own texts, and where each of its inputs lies."""
    spec = task.spec
    texts = (*spec.args, *spec.spark_conf, *spec.spark_conf.values())
    return sum(map(len, texts)) + sum(2 * len(need) + 200 for need in spec.needs)
