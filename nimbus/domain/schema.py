"""The schema of a cluster: which form of its records the leader writes."""

from __future__ import annotations

from collections.abc import Iterable

from nimbus.domain.pipeline import SparkMode, TaskSpec
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.workers import WorkerInfo

NEWEST_SCHEMA = 2
"""The newest one that this release reads and writes. It also reads and writes the one before.

2: runs are laid out as header, plan and pages (ADR 21), the catalog holds digests (ADR 22), tasks can be of
kind `shell` or `spark_submit`, in `mode: connect`, with a target, pools, labels and `start_after`. Runs can
be queued.
"""


def schema_for(task: TaskSpec) -> int:
    """The oldest schema that has such tasks: schedulers and workers that do not know it overlook them."""
    is_new = task.kind.is_program or task.spark_mode is SparkMode.CONNECT
    is_new |= bool(task.spark_place or task.pools or task.runs_on or task.start_after)
    return 2 if is_new else 1


def older_than(
    schema: int, schedulers: Iterable[SchedulerInfo], workers: Iterable[WorkerInfo]
) -> tuple[str, ...]:
    """Registered schedulers and workers that do not know a schema, such as `scheduler s1`."""
    return (
        *sorted(f"scheduler {one.id}" for one in schedulers if one.newest_schema < schema),
        *sorted(f"worker {one.id}" for one in workers if one.newest_schema < schema),
    )
