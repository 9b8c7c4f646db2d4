"""All measures of one revision, each on the clusters that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from pathlib import Path

from tests.benchmark.engine.api import MEASURE as API
from tests.benchmark.engine.api import api
from tests.benchmark.engine.lab import Lab, lab, must
from tests.benchmark.engine.large import MEASURE as LARGE
from tests.benchmark.engine.large import large
from tests.benchmark.engine.memory import CROWDED_MIB, IDLE_MIB, memory
from tests.benchmark.engine.memory import MEASURE as MEMORY
from tests.benchmark.engine.revision import Revision
from tests.benchmark.engine.rows import Row
from tests.benchmark.engine.scale import Scale
from tests.benchmark.engine.schedules import MEASURE as SCHEDULES
from tests.benchmark.engine.schedules import schedules
from tests.benchmark.engine.shapes import described
from tests.benchmark.engine.store import MEASURE as STORE
from tests.benchmark.engine.store import logged, tree
from tests.benchmark.engine.takeover import CROWDED, SMALL, Goals, takeover
from tests.benchmark.engine.takeover import MEASURE as TAKEOVER
from tests.benchmark.engine.tasks import MEASURE as TASKS
from tests.benchmark.engine.tasks import register_fast, tasks
from tests.benchmark.engine.turn import MEASURE as TURN
from tests.benchmark.engine.turn import turn

MEASURES = (TURN, TASKS, TAKEOVER, MEMORY, STORE, LARGE, SCHEDULES, API)
_HOLDERS = 100
_TASKS = 10


def whole_run(
    revision: Revision, place: Path, scale: Scale, wanted: Set[str], say: Callable[[str], None]
) -> Iterator[Row]:
    """Measure."""
    if TURN in wanted:
        say(f"{revision.label}: turns in memory")
        yield from turn(revision, place, scale)
    if wanted & {TASKS, MEMORY, STORE, LARGE, SCHEDULES}:
        yield from _quiet(revision, place, scale, wanted, say)
    if TAKEOVER in wanted:
        yield from _small_crowd(revision, place, scale, say)
    if wanted & {TASKS, TAKEOVER, MEMORY, STORE, API}:
        for live in scale.crowds:
            yield from _crowd(revision, place, scale, live, wanted, say)


def _quiet(
    revision: Revision, place: Path, scale: Scale, wanted: Set[str], say: Callable[[str], None]
) -> Iterator[Row]:
    say(f"{revision.label}: {scale.quiet} live runs")
    with lab(revision, place) as made:
        made.elect(scale.patience_s)
        if MEMORY in wanted:
            yield from memory(made, "idle", IDLE_MIB)
        _populate(made, scale, 1, scale.quiet)
        register_fast(made)
        if TASKS in wanted:
            yield from tasks(made, scale, scale.quiet)
        if STORE in wanted:
            yield from logged(made, scale)
        if LARGE in wanted:
            yield from large(made, scale)
        if SCHEDULES in wanted:  # the last: it steps the engine's clock
            yield from schedules(made, scale)


def _small_crowd(revision: Revision, place: Path, scale: Scale, say: Callable[[str], None]) -> Iterator[Row]:
    say(f"{revision.label}: {scale.pipelines:,} pipelines, {scale.small_crowd:,} live runs")
    with lab(revision, place) as made:
        made.elect(scale.patience_s)
        _populate(made, scale, scale.pipelines, scale.small_crowd)
        yield from takeover(made, scale, scale.small_crowd, scale.pipelines, SMALL)


def _crowd(
    revision: Revision,
    place: Path,
    scale: Scale,
    live: int,
    wanted: Set[str],
    say: Callable[[str], None],
) -> Iterator[Row]:
    say(f"{revision.label}: {scale.pipelines:,} pipelines, {live:,} live runs")
    with lab(revision, place) as made:
        made.elect(scale.patience_s)
        runs = _populate(made, scale, scale.pipelines, live)
        if STORE in wanted:
            yield from tree(made, live, scale.pipelines)
        if MEMORY in wanted:
            yield from memory(made, f"{live:,} live runs, which this leader has started", CROWDED_MIB)
        if wanted & {TAKEOVER, MEMORY}:
            goals = CROWDED if live >= max(scale.crowds) else Goals(CROWDED.first_s, CROWDED.all_s)
            rows = list(takeover(made, scale, live, scale.pipelines, goals))
            yield from rows if TAKEOVER in wanted else ()
        if MEMORY in wanted:
            yield from memory(made, f"{live:,} live runs, after a takeover", CROWDED_MIB)
        if API in wanted:
            yield from api(made, scale, runs)
        if TASKS in wanted:
            register_fast(made)
            yield from tasks(made, scale, live)


def _populate(made: Lab, scale: Scale, pipelines: int, live: int) -> list[str]:
    """Pipelines, and live runs of them that stand still; the runs."""
    known = [described(f"pipeline-{number:03}", "chain", _TASKS) for number in range(pipelines)]
    must(made.publish(known, scale.patience_s))
    runs = [(known[n % pipelines]["name"], f"{known[n % pipelines]['name']}-run-{n}") for n in range(live)]
    made.hold(runs, min(_HOLDERS, live), scale.patience_s)
    return [run for _, run in runs]
