"""Refuses features of schedules and dates that a cluster of schema 1 does not know."""

from __future__ import annotations

from nimbus.domain.errors import RefusedError
from nimbus.domain.pipeline import PipelineSpec
from nimbus.templates.names import ADDED, names_in


def check_dates(schema: int, spec: PipelineSpec) -> None:
    """Raise RefusedError if a scheduler of release 0.1, which may lead next, cannot read them."""
    if schema > 1:
        return
    for key in ("catchup_window", "data_interval"):
        if getattr(spec.schedule, key, None) is not None:
            _refuse(f"the schedule has {key}")
    for file in spec.interval_files:
        _refuse(f"{file} uses the data interval")
    for task in spec.tasks:
        for name in sorted(names_in("\n".join(task.args)) & set(ADDED)):
            _refuse(f"task {task.name} uses {name} in its arguments")


def _refuse(has: str) -> None:
    raise RefusedError(
        "schema_too_old",
        f"{has}, and the cluster's schema is 1, not 2: "
        "`nimbus cluster status` shows which daemons to upgrade before the leader raises it.",
    )
