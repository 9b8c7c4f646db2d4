"""The leader's report for explanations: facts that no record holds. It is part of its registration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from nimbus.domain.ids import RunId, TaskName


class WaitingTask(NamedTuple):
    """A ready task that waits."""

    run: RunId
    task: TaskName


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamUse:
    """What a team has and wants of what teams share."""

    slots: int = 0
    """Number of open attempts that take slots of workers."""
    runs: int = 0
    """Number of its runs that count for `runs.max_running`."""
    waiting: int = 0
    """Number of ready tasks."""
    queued: bool = False
    """True: a run of it is queued."""
    pools: Mapping[str, int] = field(default_factory=dict)
    """How much open attempts take of each pool."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitUse:
    """Use of the limits that tasks share. Names with no use are left out."""

    pools: Mapping[str, int] = field(default_factory=dict)
    """How much open attempts take of each pool."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Number of ready tasks that need each pool."""
    targets: Mapping[str, int] = field(default_factory=dict)
    """Number of open attempts whose Spark runs at each target."""
    teams: Mapping[str, TeamUse] = field(default_factory=dict)
    """By owner of pipelines; empty text: those without one. Cut if there are very many."""
    held_for: Mapping[str, WaitingTask] = field(default_factory=dict)
    """By pool: the first waiting task, which no other overtakes. Cut if there are very many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """A subject that the leader leaves out for a while because a decision about it failed."""

    kind: str
    """For example `run`, `pipeline`, `backfill`, `command`; `children`: a task that starts child runs."""
    id: str
    """Id of the run, the pipeline, the backfill or the command."""
    task: str = ""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSlots:
    """Slots that ready tasks lack: with that many more, on workers that suit, all of them would start."""

    labels: tuple[str, ...] = ()
    """Labels that the worker must have, sorted."""
    target: str = ""
    """The target that the worker must have; empty: none."""
    slots: int
    """Tasks whose drivers run in a cluster take none, so for all of them it is 1."""
    since: datetime
    """When the oldest of these tasks became ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderReport:
    """What explanations need to know about the leader."""

    limits: LimitUse = field(default_factory=LimitUse)
    set_aside: tuple[SetAside, ...] = ()
    """Subjects that are set aside. Cut if there are very many."""
    set_aside_count: int = 0
    wanted: tuple[WantedSlots, ...] | None = None
    """What workers must be added for, counted every few seconds. Cut if there are very many kinds.
    None: not counted since the take-over, or by a release that does not."""
