"""How the cluster stands, for gauges: the leader counts it now and then. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from nimbus.domain.admission import Wait, admit
from nimbus.engine.state import State

ASSIGNABLE = "assignable"
"""Of ready tasks for which there is a worker: their turn is next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What there is at one moment."""

    runs: Mapping[str, int] = field(default_factory=dict)
    """Live runs by state."""
    ready_tasks: Mapping[str, int] = field(default_factory=dict)
    """Tasks whose needs are met, by what they wait for: a `WaitReason`, or `assignable`."""
    slots: int = 0
    """Of registered workers."""
    open_attempts: int = 0
    commands: int = 0
    """Waiting for a decision."""
    quarantined: int = 0
    """Pipelines."""
    set_aside: int = 0
    """Runs, pipelines and commands whose records cannot be read or decided."""


def standing(state: State, now: datetime) -> Standing:
    """Count. Admission is asked about the first task of each line alone: the others wait for the same."""
    capacity, ready = state.capacity(), Counter[str]()
    for (run_id, name), count in state.ready.lines():
        run = state.runs[run_id]
        answer = admit(run, run.tasks[name], capacity, now)
        ready[answer.reason.value if isinstance(answer, Wait) else ASSIGNABLE] += count
    return Standing(
        runs=Counter(run.state.value for run in state.runs.values()),
        ready_tasks=ready,
        slots=sum(worker.slots for worker in state.workers.registered.values()),
        open_attempts=sum(state.workers.busy().values()),
        commands=len(state.commands),
        quarantined=len(state.quarantined),
        set_aside=len(state.set_aside),
    )
