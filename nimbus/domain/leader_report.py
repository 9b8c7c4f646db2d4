"""What a leader says of its decisions beside the records: part of its registration, for explanations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nimbus.domain.ids import RunId, TaskName


class WaitingTask(NamedTuple):
    """A ready task that waits."""

    run: RunId
    task: TaskName


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """What of the limits that tasks share is in use. Names that are left out: nothing."""

    pools: Mapping[str, int] = field(default_factory=dict)
    """What open attempts take of each."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Ready tasks that take something of each pool."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """Open attempts whose Spark runs there."""
    held_for: Mapping[str, WaitingTask] = field(default_factory=dict)
    """By pool: the task that waits there, and that nobody overtakes; if there are very many, not all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """What a leader asks no rule about for a while, since deciding about it failed."""

    kind: str
    """Such as `run`, `pipeline`, `backfill`, `command`; `children`: a task that starts child runs."""
    id: str
    """Of the run, the pipeline, the backfill, or the command."""
    task: str = ""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderReport:
    """What explanations need to know of a leader."""

    limits: LimitUse = field(default_factory=LimitUse)
    set_aside: tuple[SetAside, ...] = ()
    """If there are very many, not all."""
    set_aside_count: int = 0
