"""The schema of a cluster: the form in which the leader writes records."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from nimbus.domain.errors import RefusedError
from nimbus.domain.pipeline import SparkMode, TaskKind, TaskSpec
from nimbus.domain.schedulers import SchedulerInfo
from nimbus.domain.workers import WorkerInfo

NEWEST_SCHEMA = 2
"""The newest schema that this release reads and writes. It also reads and writes the one before.

2: runs are laid out as header, plan and pages (ADR 21), the catalog holds digests (ADR 22), tasks can be of
kind `shell`, `spark_submit` or `spark_pipeline`, in `mode: connect`, with a target, with requirements,
with `when`, `allow_failure`, `env`, pools, labels, `start_after`, `queue_timeout`, `warn_after` and results
of others; runs have data intervals, can be queued, and can have child runs (kind `pipeline`).
"""


_OLD_KINDS = frozenset({TaskKind.PYSPARK, TaskKind.PYTHON, TaskKind.SQL})


_NEWER_KEYS = {
    "when": "when",
    "allow_failure": "allow_failure",
    "pools": "pool",
    "secrets": "secrets",
    "env": "env",
    "runs_on": "runs_on",
    "start_after": "start_after",
    "queue_timeout": "queue_timeout",
    "warn_after": "warn_after",
    "reads": "templates with results of other tasks",
}
"""Fields of a task that schema 1 does not have, with their names in messages."""
_values_of_newer_keys = attrgetter(*_NEWER_KEYS)


def newer_part(task: TaskSpec) -> str:
    """Name of something in a task that schema 1 does not have; empty: there is nothing."""
    if task.spark_place is not None:
        return f"target {task.spark_place.target}"
    if task.kind not in _OLD_KINDS:
        return f"kind {task.kind}"
    if task.spark_mode is SparkMode.CONNECT:
        return f"mode {task.spark_mode}"
    if task.requirements:
        return "needs that may fail or be skipped"
    values = _values_of_newer_keys(task)
    if not any(values):
        return ""
    return next(key for key, value in zip(_NEWER_KEYS.values(), values, strict=True) if value)


def schema_for(task: TaskSpec) -> int:
    """The oldest schema that can express a task. Processes that do not know that schema ignore the task."""
    return 2 if newer_part(task) else 1


def require_schema(schema: int, what: str, needed: int = 2) -> None:
    """Raise RefusedError if `what` needs a newer schema than the cluster's.

    A scheduler of the previous release, which may lead next, would ignore it or could not read it.
    """
    if schema < needed:
        raise RefusedError(
            "schema_too_old",
            f"{what} needs schema {needed}, and the cluster's is {schema}: `nimbus cluster status` shows "
            "which daemons to upgrade before the leader raises it.",
        )


def older_than(
    schema: int, schedulers: Iterable[SchedulerInfo], workers: Iterable[WorkerInfo]
) -> tuple[str, ...]:
    """Names of registered schedulers and workers that do not know `schema`, such as `scheduler s1`."""
    return (
        *sorted(f"scheduler {one.id}" for one in schedulers if one.newest_schema < schema),
        *sorted(f"worker {one.id}" for one in workers if one.newest_schema < schema),
    )
