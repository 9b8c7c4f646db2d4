"""All measures of one revision, each on the clusters that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.benchmark.blobsync.line_process import BenchFailedError
from tests.benchmark.engine.api import MEASURE as API
from tests.benchmark.engine.api import api
from tests.benchmark.engine.lab import Lab, lab, must
from tests.benchmark.engine.large import MEASURE as LARGE
from tests.benchmark.engine.large import large
from tests.benchmark.engine.memory import CROWDED_MIB, IDLE_MIB, memory, rest
from tests.benchmark.engine.memory import MEASURE as MEMORY
from tests.benchmark.engine.revision import Revision
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale
from tests.benchmark.engine.schedules import MEASURE as SCHEDULES
from tests.benchmark.engine.schedules import schedules
from tests.benchmark.engine.shapes import described
from tests.benchmark.engine.store import MEASURE as STORE
from tests.benchmark.engine.store import logged, tree
from tests.benchmark.engine.takeover import CROWDED, SMALL, takeover
from tests.benchmark.engine.takeover import MEASURE as TAKEOVER
from tests.benchmark.engine.tasks import MEASURE as TASKS
from tests.benchmark.engine.tasks import register_fast, tasks
from tests.benchmark.engine.turn import MEASURE as TURN
from tests.benchmark.engine.turn import turn
from tests.benchmark.engine.width import MEASURE as WIDTH
from tests.benchmark.engine.width import width

MEASURES = (TURN, TASKS, TAKEOVER, MEMORY, STORE, LARGE, SCHEDULES, API, WIDTH)
Stage = Callable[["Plan", Lab], Iterator[Row]]
"""The measures that share one cluster."""
_HOLDERS = 100
_TASKS = 10


@dataclass(frozen=True)
class Plan:
    """The measures for one revision.

    Args:
        place: Folder for all data.
        wanted: Some of `MEASURES`.
        say: Called with the name of each part before it starts.
    """

    revision: Revision
    place: Path
    scale: Scale
    wanted: Set[str]
    say: Callable[[str], None]


def whole_run(plan: Plan) -> Iterator[Row]:
    """Run all measures. If a cluster breaks down, only its remaining measures are lost."""
    if TURN in plan.wanted:
        plan.say("turns in memory")
        yield from _guarded({TURN}, turn(plan.revision, plan.place, plan.scale))
    for measures, stage in _stages(plan.scale):
        if plan.wanted & measures:
            yield from _guarded(plan.wanted & measures, _on_a_lab(plan, stage))


def _stages(scale: Scale) -> Iterator[tuple[Set[str], Stage]]:
    yield {MEMORY, TASKS}, _quiet
    yield {STORE}, _logged
    yield {LARGE}, _large
    yield {WIDTH}, _wide
    yield {TAKEOVER, SCHEDULES}, _small_crowd
    for live in scale.crowds:
        yield {STORE, MEMORY, TAKEOVER, API, TASKS}, partial(_crowd, live=live)


def _on_a_lab(plan: Plan, stage: Stage) -> Iterator[Row]:
    with lab(plan.revision, plan.place) as made:
        made.elect(plan.scale.patience_s)
        yield from stage(plan, made)


def _guarded(measures: Set[str], rows: Iterator[Row]) -> Iterator[Row]:
    try:
        yield from rows
    except BenchFailedError as exc:
        why = str(exc).splitlines()[0]
        for measure in sorted(measures):
            yield Row(measure=measure, words="the rest of this cluster", unit="", value=None, note=why)


def _quiet(plan: Plan, made: Lab) -> Iterator[Row]:
    scale = plan.scale
    plan.say(f"{scale.quiet} live runs")
    if MEMORY in plan.wanted:
        yield from memory(made, "idle", IDLE_MIB)
    _populate(made, scale, 1, scale.quiet)
    register_fast(made)
    if TASKS in plan.wanted:
        yield from tasks(made, scale, scale.quiet)


def _logged(plan: Plan, made: Lab) -> Iterator[Row]:
    plan.say("bytes in the transaction log")
    register_fast(made)
    yield from logged(made, plan.scale)


def _large(plan: Plan, made: Lab) -> Iterator[Row]:
    plan.say("large runs")
    register_fast(made)
    yield from large(made, plan.scale)


def _wide(plan: Plan, made: Lab) -> Iterator[Row]:
    plan.say("one wide run")
    yield from width(made, plan.scale)


def _small_crowd(plan: Plan, made: Lab) -> Iterator[Row]:
    scale = plan.scale
    plan.say(f"{scale.pipelines:,} pipelines, {scale.small_crowd:,} live runs")
    _populate(made, scale, scale.pipelines, scale.small_crowd)
    if TAKEOVER in plan.wanted:
        yield from takeover(made, scale, scale.small_crowd, scale.pipelines, SMALL)
    if SCHEDULES in plan.wanted:  # the last one, because the tasks of its runs would disturb other measures
        register_fast(made)
        yield from schedules(made, scale)


def _crowd(plan: Plan, made: Lab, live: int) -> Iterator[Row]:
    scale = plan.scale
    plan.say(f"{scale.pipelines:,} pipelines, {live:,} live runs")
    runs = _populate(made, scale, scale.pipelines, live)
    if STORE in plan.wanted:
        yield from tree(made, live, scale.pipelines)
    if MEMORY in plan.wanted:
        yield from memory(made, f"{live:,} live runs, started by this leader", CROWDED_MIB)
        yield from rest(made, f"{scale.pipelines:,} pipelines, {live:,} live runs", scale.patience_s)
    if TAKEOVER in plan.wanted:
        yield from takeover(made, scale, live, scale.pipelines, CROWDED)
        if MEMORY in plan.wanted:
            yield from memory(made, f"{live:,} live runs, after a takeover", CROWDED_MIB)
    if API in plan.wanted:
        yield from api(made, scale, runs)
    if TASKS in plan.wanted:
        register_fast(made)
        yield from tasks(made, scale, live)


def _populate(made: Lab, scale: Scale, pipelines: int, live: int) -> list[str]:
    """Publish pipelines, and start runs that do not advance. Returns the runs."""
    known = [described(f"pipeline-{number:03}", "chain", _TASKS) for number in range(pipelines)]
    must(made.publish(known, scale.patience_s))
    runs = [(known[n % pipelines]["name"], f"{known[n % pipelines]['name']}-run-{n}") for n in range(live)]
    made.hold(runs, min(_HOLDERS, live), scale.patience_s)
    return [run for _, run in runs]
