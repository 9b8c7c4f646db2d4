"""Runs of backfills in the queue: last by priority, but one of ten started runs is theirs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from nimbus.domain.ids import BackfillId, PipelineName, ReleaseDigest, RunId
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority
from nimbus.domain.runs.run import RunCause, RunHeader, RunState
from nimbus.domain.starts.places import TURN
from nimbus.engine.run_queue import RunQueue

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def queued(name: str, pipeline: str, number: int, *, backfill: bool) -> RunHeader:
    return RunHeader(
        id=RunId(name),
        pipeline=PipelineName(pipeline),
        release=ReleaseDigest("0" * 64),
        parameters={},
        logical_date=NOW,
        created_at=NOW + timedelta(seconds=number),
        cause=RunCause.BACKFILL if backfill else RunCause.SCHEDULE,
        priority=Priority.LOW if backfill else Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        backfill=BackfillId("b") if backfill else None,
        state=RunState.QUEUED,
    )


def starts(queue: RunQueue, runs: dict[RunId, RunHeader], count: int) -> list[RunHeader]:
    """The runs that start one after the other. Each ends at once, and a similar one is queued."""
    found = []
    for number in range(count):
        first = queue.first()
        if first is None:
            break
        run = replace(runs[first], state=RunState.RUNNING)
        queue.put(run)
        queue.discard(first)
        found.append(run)
        later = queued(
            f"{run.pipeline}-{run.backfill}-{1000 + number}",
            run.pipeline,
            1000 + number,
            backfill=run.backfill is not None,
        )
        runs[later.id] = later
        queue.put(later)
    return found


def filled(
    *lines: tuple[str, bool], limit: int | None = 1, max_running: int | None = None
) -> tuple[RunQueue, dict[RunId, RunHeader]]:
    queue = RunQueue(lambda _pipeline: limit, max_running)
    runs = {}
    for number, (pipeline, backfill) in enumerate(lines):
        run = queued(f"{pipeline}-{number}", pipeline, number, backfill=backfill)
        runs[run.id] = run
        queue.put(run)
    return queue, runs


def test_one_run_in_ten_is_a_backfills_though_scheduled_ones_always_wait() -> None:
    queue, runs = filled(("p", True), ("p", False), ("p", False))

    found = [run.backfill is not None for run in starts(queue, runs, 40)]

    assert found == ([False] * (TURN - 1) + [True]) * 4


def test_backfill_alone_starts_one_run_after_the_other() -> None:
    queue, runs = filled(("p", True), ("p", True))

    assert all(run.backfill for run in starts(queue, runs, 20))


@settings(deadline=None)
@given(st.integers(1, 4), st.integers(0, 3), st.integers(1, 3))
def test_no_pipeline_starves_a_backfill_nor_a_backfill_the_others(
    busy: int, both: int, backfills: int
) -> None:
    lines = [(f"busy-{n}", False) for n in range(busy)]
    lines += [(f"both-{n}", kind) for n in range(both) for kind in (False, True)]
    lines += [(f"backfill-{n}", True) for n in range(backfills)]
    queue, runs = filled(*lines, max_running=1)

    found = starts(queue, runs, 400)

    theirs = sum(run.backfill is not None for run in found)
    assert 400 // TURN <= theirs <= 2 * 400 // TURN  # one of ten in total, and for each pipeline
    assert len({run.pipeline for run in found if run.backfill is not None}) >= 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from("pq"), st.booleans()), max_size=30), st.data())
def test_queue_is_empty_when_all_that_was_put_in_is_taken_out(
    lines: list[tuple[str, bool]], data: st.DataObject
) -> None:
    queue, runs = filled(*lines, limit=None)
    for run in data.draw(st.permutations(list(runs))):
        queue.discard(run)

    assert (queue.first(), queue._lines, queue._backfills, queue._ranks) == (None, {}, {}, {})
