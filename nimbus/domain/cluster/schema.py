"""The schema of a cluster: the form in which the leader writes records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.schedulers import SchedulerInfo
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskSpec

NEWEST_SCHEMA = 1
"""The newest schema that this release reads and writes. It also reads and writes the one before."""

NEEDED: Mapping[str, int] = {}
"""Fields of a task that came with a later schema than 1, and that schema.

A task with such a field waits for a worker that knows the schema, and its pipeline is refused until the
cluster has it: a scheduler of the release before, which may lead next, would ignore the field.
"""


class SchemaUnknownError(NimbusError):
    """Records were written in a form that this release does not know. A restart cannot mend it."""

    code = "schema_unknown"
    exit_code = 2


def check_known(schema: int, what: str) -> None:
    """Raise SchemaUnknownError if this release cannot read and write records of a schema.

    `what`: their place, such as the root of a cluster or a file, for the message.
    """
    known = f"{what} has schema {schema}, and this release knows {NEWEST_SCHEMA}"
    if schema > NEWEST_SCHEMA:
        raise SchemaUnknownError(f"{known}: a newer release wrote it. Start that release, or a newer one.")
    if schema < NEWEST_SCHEMA - 1:
        raise SchemaUnknownError(
            f"{known} and the one before: upgrade one release at a time. First run the release that knows "
            f"{schema + 1} until `nimbus cluster status` shows schema {schema + 1}."
        )


def schema_for(task: TaskSpec) -> int:
    """The oldest schema that has all fields of a task."""
    return max((number for field, number in NEEDED.items() if getattr(task, field)), default=1)


def check_schema(schema: int, spec: PipelineSpec) -> None:
    """Raise RefusedError if a task has a field that the cluster's schema does not have."""
    for task in spec.tasks if NEEDED else ():
        if (needed := schema_for(task)) > schema:
            raise RefusedError(
                "schema_too_old",
                f"task {task.name} needs schema {needed}, and the cluster's is {schema}: `nimbus cluster "
                "status` shows which daemons to upgrade before the leader raises it.",
            )


def older_than(
    schema: int, schedulers: Iterable[SchedulerInfo], workers: Iterable[WorkerInfo]
) -> tuple[str, ...]:
    """Names of registered schedulers and workers that do not know `schema`, such as `scheduler s1`."""
    return (
        *sorted(f"scheduler {scheduler.id}" for scheduler in schedulers if scheduler.newest_schema < schema),
        *sorted(f"worker {worker.id}" for worker in workers if worker.newest_schema < schema),
    )
