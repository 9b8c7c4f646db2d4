"""Topics of event streams."""

from __future__ import annotations

import re

from nimbus.domain.ids import NAME_PATTERN, RUN_ID_PATTERN, PipelineName, RunId

CLUSTER, ELECTION, RUNS, PIPELINES, WORKERS, COMMANDS = GENERAL = (
    "cluster",
    "election",
    "runs",
    "pipelines",
    "workers",
    "commands",
)
PATTERN = re.compile(
    rf"(?:{'|'.join(GENERAL)}|run/(?:{RUN_ID_PATTERN.pattern})|pipeline/(?:{NAME_PATTERN.pattern}))"
)


def of_run(run: RunId) -> str:
    """The topic of one run: its record, and the attempts of its tasks."""
    return f"run/{run}"


def of_pipeline(name: PipelineName) -> str:
    """The topic of one pipeline: its record, its schedule, and its index of data intervals."""
    return f"pipeline/{name}"
