"""Runs of many shapes for the tests of the pages, on the small cluster in memory of the integration tests."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.ids import AttemptId, PipelineName, TaskName, WorkerId
from nimbus.domain.pipeline import (
    CatchUp,
    ParameterSpec,
    PipelineSpec,
    RetryPolicy,
    Schedule,
    TaskKind,
    TaskSpec,
)
from nimbus.domain.run import Attempt, Outcome, Run, RunState, TaskRun, TaskState
from nimbus.domain.tasks import Tasks
from tests.definitions import active

HOSTILE = """<script>alert(1)</script>"'><img src=x onerror=alert(2)>{{7*7}}\x1b[31m</pre></title>\u202e"""
"""A text that harms a page that does not escape it."""


def layered(count: int, seed: int = 7) -> list[TaskSpec]:
    """Tasks in layers of about ten, each needing one to three of the layer before."""
    dice, names = random.Random(seed), [TaskName(f"task-{number:04d}") for number in range(count)]
    wide = max(3, min(12, count // 6))
    specs = []
    for number, name in enumerate(names):
        layer = number // wide
        before = names[(layer - 1) * wide : layer * wide] if layer else []
        needs = tuple(sorted(dice.sample(before, min(len(before), dice.choice((1, 1, 2, 3))))))
        specs.append(TaskSpec(name=name, kind=TaskKind.PYTHON, script="t.py", needs=needs))
    return specs


def fan(count: int) -> list[TaskSpec]:
    """One task, then many alike, then one that needs them all."""
    middle = [TaskName(f"part-{number:04d}") for number in range(count)]
    plain = {"kind": TaskKind.PYTHON, "script": "t.py"}
    return [
        TaskSpec(name=TaskName("split"), **plain),  # type: ignore[arg-type]
        *(TaskSpec(name=name, needs=(TaskName("split"),), **plain) for name in middle),  # type: ignore[arg-type]
        TaskSpec(name=TaskName("join"), needs=tuple(middle), **plain),  # type: ignore[arg-type]
    ]


def tried(spec: TaskSpec, state: TaskState, began: datetime, took: timedelta, reason: str = "") -> TaskRun:
    """A task that is in `state`, after one attempt if that takes one."""
    if state in (TaskState.WAITING, TaskState.SKIPPED, TaskState.NOT_RUN):
        return TaskRun(spec=spec, state=state)
    ended = {
        TaskState.SUCCEEDED: {"outcome": Outcome.SUCCEEDED, "exit_code": 0},
        TaskState.FAILED: {"outcome": Outcome.FAILED, "exit_code": 1, "reason": reason or "exit 1"},
        TaskState.RUNNING: {},
    }[state]
    attempt = Attempt(
        number=1,
        worker=WorkerId("w1"),
        opened_at=began,
        opened_by_epoch=7,
        started_at=began + took / 10,
        ended_at=began + took if ended else None,
        **ended,  # type: ignore[arg-type]
    )
    return TaskRun(spec=spec, state=state, attempts=(attempt,))


def part_done(world: Any, run_id: str, specs: list[TaskSpec], share: float = 0.6, **changes: Any) -> Run:
    """A live run whose first tasks have succeeded; of the next ones one has failed, two run."""
    done = int(len(specs) * share)
    start, step = world.clock.now() - timedelta(minutes=20), timedelta(seconds=900 / len(specs))
    tasks = []
    for number, spec in enumerate(specs):
        state = TaskState.SUCCEEDED if number < done else TaskState.WAITING
        if number in (done, done + 1):
            state = TaskState.RUNNING
        if number == done - 1 and len(specs) > 3:
            state = TaskState.FAILED
        tasks.append(tried(spec, state, start + step * number, step * 3))
    run = world.new_run(
        run_id, tasks=Tasks(tasks), created_at=start - timedelta(seconds=9), started_at=start, **changes
    )
    world.cluster.put(run)
    return run


def finished(world: Any, run_id: str, specs: list[TaskSpec], *, hours_ago: float, slower: float = 1.0) -> Run:
    """A run that has succeeded."""
    start = world.clock.now() - timedelta(hours=hours_ago)
    step = timedelta(seconds=300 / len(specs)) * slower
    tasks = [tried(spec, TaskState.SUCCEEDED, start + step * n, step * 2) for n, spec in enumerate(specs)]
    run = world.new_run(
        run_id,
        tasks=Tasks(tasks),
        state=RunState.SUCCEEDED,
        created_at=start,
        started_at=start,
        finished_at=start + step * (len(specs) + 1),
        parameters={"day": "2026-02-28", "limit": 100},
    )
    world.cluster.put(run)
    return run


def hostile(world: Any, run_id: str = "hostile-1") -> Run:
    """A run with a text that harms in every place that takes any text."""
    specs = [
        replace(spec, args=(HOSTILE,), script=HOSTILE, retries=RetryPolicy(limit=2)) for spec in layered(4)
    ]
    start = world.clock.now()
    states = (TaskState.SUCCEEDED, TaskState.FAILED, TaskState.RUNNING, TaskState.WAITING)
    tasks = [
        tried(spec, state, start, timedelta(minutes=1), HOSTILE)
        for spec, state in zip(specs, states, strict=True)
    ]
    run = world.new_run(
        run_id,
        tasks=Tasks(tasks),
        parameters={HOSTILE: HOSTILE},
        variables={HOSTILE: HOSTILE},
        note=HOSTILE,
        reason=HOSTILE,
        submitted_by=HOSTILE,
        selected=HOSTILE,
    )
    world.cluster.put(run)
    for number in (0, 1, 2):
        world.logs.append(AttemptId(run.id, specs[number].name, 1), 0, f"{HOSTILE}\n".encode() * 20)
    return run


def pipeline(world: Any, name: str, **changes: Any) -> PipelineRecord:
    """A pipeline with a schedule and a parameter of each kind."""
    spec = PipelineSpec(
        name=PipelineName(name),
        description="Counts what came in",
        schedule=Schedule(cron="0 6 * * *", timezone="Europe/Berlin", catchup=CatchUp.LATEST),
        parameters={
            "day": ParameterSpec(type="string", required=True, description="The day to count"),
            "note": ParameterSpec(type="string", default="as always"),
            "limit": ParameterSpec(type="integer", default=100, minimum=1, maximum=500),
            "strict": ParameterSpec(type="boolean", default=True),
            "region": ParameterSpec(type="string", choices=("eu", "us"), default="eu"),
        },
        tasks=tuple(layered(5)),
    )
    record = active(spec, **{"schedule_position": world.clock.now(), **changes})
    world.cluster.put(record)
    return record


def catalog(world: Any) -> None:
    """Pipelines in every state, among them one with a text that harms wherever it takes any text."""
    pipeline(world, "daily")
    pipeline(world, "resting", state=PipelineState.PAUSED, published="9" * 64, owner="data-team")
    pipeline(world, "new", state=PipelineState.INACTIVE, release=None)
    harmful = {HOSTILE: ParameterSpec(type="string", default=HOSTILE, description=HOSTILE)}
    spec = PipelineSpec(
        name=PipelineName("hostile"), description=HOSTILE, parameters=harmful, tasks=tuple(layered(2))
    )
    world.cluster.put(active(spec, owner=HOSTILE))
    world.cluster.put(replace(world.health.me, quarantined={"hostile": HOSTILE}, last_abdication=HOSTILE))
