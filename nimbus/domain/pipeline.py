"""What a pipeline is: tasks, what they need, and the rules they run under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import IntEnum, StrEnum
from typing import Any

from nimbus.domain.ids import PipelineName, TaskName

DEFINITION_FILE = "pipeline.yaml"
"""Where a pipeline's folder, and so every release, keeps its definition."""


class TaskKind(StrEnum):
    """How a task's file is run."""

    PYSPARK = "pyspark"
    PYTHON = "python"
    SQL = "sql"


SPARK_KINDS = frozenset({TaskKind.PYSPARK, TaskKind.SQL})
"""Their drivers have a Spark session."""


class FailureStrategy(StrEnum):
    """What a failed task (its retries used up) means for the rest of its run."""

    END = "end"
    """Nothing new starts, what runs is stopped, the run fails."""
    CONTINUE = "continue"
    """All that does not depend on the failed task goes on; the run fails at its end."""


class Priority(IntEnum):
    """Smaller goes first."""

    HIGHEST = 0
    HIGH = 1
    MEDIUM = 2
    LOW = 3
    LOWEST = 4


class CatchUp(StrEnum):
    """What happens to fire times that passed while no leader could see them."""

    NONE = "none"
    LATEST = "latest"
    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often, and after which pauses, a task that failed is tried again."""

    limit: int = 0
    delay: timedelta = timedelta(seconds=10)
    factor: float = 2.0
    max_delay: timedelta = timedelta(minutes=10)

    def pause_after(self, failures: int) -> timedelta:
        """The pause after the n-th failure, counted from 1. Exponential, bounded."""
        seconds = self.delay.total_seconds() * self.factor ** min(failures - 1, 64)
        return min(timedelta(seconds=min(seconds, 1e9)), self.max_delay)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSpec:
    """One task of a pipeline. In a run its `args` are already rendered."""

    name: TaskName
    kind: TaskKind
    script: str
    """Path of the script or SQL file inside the release, with `/`."""
    args: tuple[str, ...] = ()
    needs: tuple[TaskName, ...] = ()
    retries: RetryPolicy = field(default_factory=RetryPolicy)
    timeout: timedelta | None = None
    """Of one attempt."""
    priority: Priority = Priority.MEDIUM
    spark_conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When runs start by themselves."""

    cron: str
    """Five fields, Debian's rules."""
    timezone: str
    """IANA name."""
    catchup: CatchUp = CatchUp.LATEST


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One parameter of a run."""

    type: str
    """`string`, `integer`, `number` or `boolean`."""
    default: Any = None
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[Any, ...] = ()
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSpec:
    """A pipeline as its definition file says it; checked where it was read, then trusted."""

    name: PipelineName
    description: str = ""
    schedule: Schedule | None = None
    failure_strategy: FailureStrategy = FailureStrategy.END
    priority: Priority = Priority.MEDIUM
    timeout: timedelta | None = None
    """Of a whole run."""
    parameters: Mapping[str, ParameterSpec] = field(default_factory=dict)
    files: tuple[str, ...] = ("**/*",)
    """Globs, relative to the pipeline's folder, of the release's code."""
    dependencies: tuple[str, ...] = ()
    """Globs of wheels that the release brings along."""
    python_path: tuple[str, ...] = ()
    """Folders of the release that every task can import from."""
    tasks: tuple[TaskSpec, ...] = ()
