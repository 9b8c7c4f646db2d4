"""Finds the first waiting task of each pool by reading every ready task. The leader's queues must agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.starts.admission import Capacity, PoolHolder, holder_of, task_rank


def pool_holders(
    waiting: Iterable[tuple[Run, TaskRun]], capacity: Capacity
) -> Callable[[str], PoolHolder | None]:
    """The most urgent ready task that waits for each pool. No other task may overtake it there."""
    holders: dict[str, PoolHolder] = {}
    for run, task in sorted(waiting, key=lambda one: task_rank(*one)):
        holder = holder_of(run, task, capacity)
        for pool in task.spec.pools if holder is not None else ():
            holders.setdefault(pool, holder)
    return holders.get
