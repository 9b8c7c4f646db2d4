"""A run as nodes: a header, the plan, and pages of task states. Only what changed is written.

`""` is the run's own node, the header. The plan (tasks as rendered, parameters) never changes; `plan-0`, `plan-1`
and so on are its pieces. `tasks-k` holds the states of `PAGE` tasks. A run whose plan and states fit into one
small node has them there: most runs do, and are then read and written in one call.

Both are compressed JSON. What a node can grow to is bounded when the run is made (`check_size`).
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from nimbus.domain.ids import RunId
from nimbus.domain.pipeline import TaskSpec
from nimbus.domain.run import Attempt, Run, RunHeader, TaskRun, TaskState
from nimbus.domain.tasks import PAGE, Page, Tasks
from nimbus.records import UnreadableRecordError

SCHEMA = 2
PIECE_BYTES = 96 * 1024
"""Of the plan, in one node."""
LARGEST_INLINE = 4 * 1024
"""Compressed bytes of a plan that stands in the header."""
LARGEST_PLAN = 448 * 1024
"""Compressed bytes of a whole plan: it is written in one transaction with all else that makes a run."""
_LARGEST_RAW = 64 << 20
"""Bytes that a compressed piece may unfold to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    parameters: Mapping[str, Any]
    python_path: tuple[str, ...]
    tasks: tuple[TaskSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Progress:
    """What changes in a task. Left out where it has its default, which must never change its meaning."""

    state: TaskState = TaskState.WAITING
    attempts: tuple[Attempt, ...] = ()
    earlier_failures: int = 0
    earlier_mishaps: int = 0
    retry_at: datetime | None = None


_PLAN = TypeAdapter(_Plan)
_PROGRESS = TypeAdapter(tuple[_Progress, ...])
_HEADER = TypeAdapter(RunHeader)
_IN_PLAN = ("parameters", "python_path")
_PROGRESS_FIELDS = tuple(field.name for field in fields(_Progress))
_HEADER_FIELDS = tuple(field.name for field in fields(RunHeader))
