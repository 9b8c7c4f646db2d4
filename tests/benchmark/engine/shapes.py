"""Makes pipelines of a few shapes from a small description, equal in every process."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from nimbus.domain.ids import PipelineName, TaskName
from nimbus.domain.pipelines.pipeline import PipelineSpec, Retries, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.drafts import new_run
from nimbus.domain.runs.run import Run
from nimbus.engine.decision import BuildRun
from nimbus.engine.events import RunBuilt
from nimbus.engine.state import Built

_NEEDS = 3
_WINDOW = 50
"""In a random graph, a task needs at most `_NEEDS` of the `_WINDOW` tasks before it."""


def described(
    name: str, shape: str, tasks: int, *, fails: int = 0, every: int = 1, cron: str | None = None
) -> dict[str, Any]:
    """Describe a pipeline.

    Args:
        name: Name of the pipeline.
        shape: `wide`, `join` (wide, and a last task that needs all others), `chain` or `dag`.
        tasks: Number of tasks.
        fails: How often a failing task fails before it succeeds.
        every: Only one in `every` tasks fails.
        cron: Its schedule.
    """
    return {"name": name, "shape": shape, "tasks": tasks, "fails": fails, "every": every, "cron": cron}


def attempts_of(what: Mapping[str, Any]) -> int:
    """Number of attempts that one run has."""
    return sum(1 + _fails(what, place) for place in range(what["tasks"]))


def digest_of(what: Mapping[str, Any]) -> str:
    """Digest of the release, which is this description."""
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def spec_of(what: Mapping[str, Any]) -> PipelineSpec:
    """The definition of a described pipeline."""
    name, count = what["name"], what["tasks"]
    names = [TaskName(f"t{place}-f{_fails(what, place)}") for place in range(count)]
    draw = random.Random(name)
    tasks = tuple(
        TaskSpec(
            name=names[place],
            kind=TaskKind.PYTHON,
            script="task.py",
            args=("--day", "{{ ds }}"),
            needs=tuple(names[other] for other in _needs(what, place, draw)),
            retries=Retries(limit=what["fails"], delay=timedelta(0)),
        )
        for place in range(count)
    )
    schedule = None if what["cron"] is None else Schedule(cron=what["cron"], timezone="UTC")
    return PipelineSpec(name=PipelineName(name), schedule=schedule, tasks=tasks)


def failures_of(task: str) -> int:
    """How often a task fails before it succeeds. The number is in its name."""
    return int(task.rpartition("-f")[2])


def place_of(task: str) -> int:
    """A task's place in its pipeline, from 0."""
    return int(task.partition("-")[0].removeprefix("t"))


def _fails(what: Mapping[str, Any], place: int) -> int:
    return int(what["fails"]) if place % what["every"] == 0 else 0


def _needs(what: Mapping[str, Any], place: int, draw: random.Random) -> Sequence[int]:
    shape = what["shape"]
    if shape == "join" and place == what["tasks"] - 1:
        return range(place)
    if shape in ("wide", "join") or place == 0:
        return []
    if shape == "chain":
        return [place - 1]
    near = range(max(0, place - _WINDOW), place)
    return sorted(draw.sample(near, min(len(near), draw.randint(0, _NEEDS))))


def run_built(
    effect: BuildRun, specs: Mapping[str, PipelineSpec], render: Callable[[Run], Run] = lambda run: run
) -> RunBuilt:
    """The event that answers an effect.

    Args:
        effect: Asks for the run.
        specs: Definitions, by the digest of their release.
        render: Renders the arguments; by default, they stay unchanged.
    """
    return RunBuilt(
        effect.key, Built(effect.draft, render(new_run(specs[effect.draft.release], effect.draft)))
    )
