"""Refuses a run at its start if ZooKeeper might refuse its record later: then nobody could finish it."""

from __future__ import annotations

from nimbus import records
from nimbus.adapters.zookeeper.calls import LARGEST_REQUEST, check_size
from nimbus.domain.growth import attempts_kept, largest
from nimbus.domain.ids import AttemptId
from nimbus.domain.orders import order_for
from nimbus.domain.run import Run
from nimbus.domain.workers import AssignmentKind

BESIDE = 16 * 1024
"""Bytes of one transaction beside the run's record and an order: paths, CLAIM, END."""


def check_growth(run: Run) -> None:
    """Count what the largest transaction about a new run can hold.

    Raises:
        RecordTooLargeError: it could be more than ZooKeeper takes.
    """
    size = grown_bytes(run) + _order_bytes(largest(run)) + BESIDE
    check_size(f"run {run.id}, once its {len(run.tasks)} tasks were tried,", size, LARGEST_REQUEST)


def grown_bytes(run: Run) -> int:
    """Bytes of the largest record that a run can become, without making it: attempts are equally large."""
    one, two = (len(records.RUN.encode(largest(run, attempts=count))) for count in (1, 2))
    return one + (attempts_kept(run) - 1) * (two - one)


def _order_bytes(run: Run) -> int:
    """Bytes of the largest order for one of its tasks, which is written together with the record."""
    return max(
        len(
            records.ASSIGNMENT.encode(
                order_for(
                    run,
                    AttemptId(run.id, name, task.tried),
                    epoch=task.attempts[-1].opened_by_epoch,
                    kind=AssignmentKind.RUN,
                )
            )
        )
        for name, task in run.tasks.items()
    )
