"""The index of intervals. It changes in the transaction that ends a run, so each change is fenced."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nimbus.domain.interval_index import IntervalIndex
from nimbus.domain.run import Run
from nimbus.domain.writes import PutIntervals
from nimbus.engine.agenda import Instant
from nimbus.engine.decision import Decision
from nimbus.engine.state import State


def noted(state: State, decision: Decision, ended: Iterable[Run], now: Instant) -> Decision:
    """The decision, with the new index of each pipeline whose run with a data interval it ends."""
    changed: dict[str, PutIntervals] = {}
    for run in ended:
        if run.data_interval is None or not _stands_for_it(run):
            continue
        before = state.catalog.intervals.get(run.pipeline)
        known = changed[run.pipeline].index if run.pipeline in changed else before
        index = (known or IntervalIndex(begins=now.wall)).with_run(run)
        if index is not known:
            changed[run.pipeline] = PutIntervals(run.pipeline, index, before)
    return replace(decision, writes=(*decision.writes, *changed.values())) if changed else decision


def _stands_for_it(run: Run) -> bool:
    """True when a run covers its whole interval. Child runs and runs with left-out tasks do only a part."""
    left_out = bool(run.selected) and any(task.left_out for task in run.tasks.in_order())
    return run.parent is None and not left_out
