"""Refuses features of schedules and dates that a cluster of schema 1 does not know."""

from __future__ import annotations

from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.schema import require_schema
from nimbus.templates.names import ADDED, names_in


def check_dates(schema: int, spec: PipelineSpec) -> None:
    """Raise RefusedError if a scheduler of release 0.1, which may lead next, cannot read them."""
    if schema > 1:  # the search of the templates takes time
        return
    for key in ("catchup_window", "data_interval"):
        if getattr(spec.schedule, key, None) is not None:
            require_schema(schema, f"{key} of the schedule")
    for file in spec.interval_files:
        require_schema(schema, f"the data interval in {file}")
    for task in spec.tasks:
        for name in sorted(names_in("\n".join(task.args)) & set(ADDED)):
            require_schema(schema, f"{name} in the arguments of task {task.name}")
