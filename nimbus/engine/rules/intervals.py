"""The index of intervals: it changes in the transaction that ends a run, so it is written once and fenced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.run import Run
from nimbus.domain.writes import CreateRun, PutIntervals, PutRun, Write
from nimbus.engine.agenda import Instant
from nimbus.engine.decision import Answer, Decision
from nimbus.engine.state import State


def noted(state: State, answer: Answer, now: Instant) -> Answer:
    """The answer; with each run that ends by it, and that has a data interval, its pipeline's index."""
    if not isinstance(answer, Decision):
        return answer
    changed: dict[str, PutIntervals] = {}
    for run in _ended(answer.writes):
        if run.data_interval is None:
            continue
        before = state.intervals.get(run.pipeline)
        known = changed[run.pipeline].index if run.pipeline in changed else before
        index = (known or IntervalIndex(begins=now.wall)).with_run(run)
        if index is not known:
            changed[run.pipeline] = PutIntervals(run.pipeline, index, before)
    return replace(answer, writes=(*answer.writes, *changed.values())) if changed else answer


def _ended(writes: Sequence[Write]) -> Iterator[Run]:
    for write in writes:
        if isinstance(write, CreateRun | PutRun) and write.run.state.is_final:
            yield write.run
