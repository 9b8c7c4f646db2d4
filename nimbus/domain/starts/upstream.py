"""Decides whether a task's wait for runs of a pipeline is met. Pure; for the leader and for explanations.

A wait is met when the intervals whose last run succeeded together cover the needed interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from zoneinfo import ZoneInfo

from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.interval_index import Ended, IntervalIndex
from nimbus.domain.pipelines.intervals import DataInterval, earlier, gaps, shown
from nimbus.domain.runs.run import RunHeader, RunState
from nimbus.domain.starts.waits import OnFailed, PipelineWait

MAX_GAPS = 3
"""How many gaps a text names. It only counts the others."""


class WaitState(Enum):
    """The state of a wait."""

    MET = "met"
    OPEN = "open"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Upstream:
    """Known facts about the runs of a pipeline."""

    index: IntervalIndex | None
    live: tuple[RunHeader, ...]
    exists: bool = True
    """True when the pipeline is in the catalog."""


@dataclass(frozen=True, slots=True)
class JudgedWait:
    """The state of a wait, and what is missing."""

    standing: WaitState
    missing: str = ""


def upstream_of(wait: PipelineWait, run: RunHeader) -> PipelineName:
    """The pipeline whose runs are waited for."""
    return run.pipeline if wait.is_self else wait.pipeline


def judge(wait: PipelineWait, run: RunHeader, upstream: Upstream) -> JudgedWait:
    """The state of a wait.

    Args:
        wait: The wait.
        run: The run of the waiting task. Without a data interval, no wait can be met.
        upstream: Facts about the pipeline that `upstream_of` returns.
    """
    if run.data_interval is None:
        return JudgedWait(WaitState.FAILED, "its run has no data interval")
    live = [other for other in upstream.live if other.id != run.id and _may_count(other)]
    if wait.is_self:
        awaited = _before(run.data_interval, upstream.index, live)
    else:
        awaited = wanted(wait, run.data_interval, ZoneInfo(run.timezone))
    if awaited is None:
        return JudgedWait(WaitState.MET)  # the first one
    ended = () if upstream.index is None else tuple(upstream.index.overlapping(awaited))
    lacks = gaps(awaited, (run.interval for run in ended if run.outcome is RunState.SUCCEEDED))
    if not lacks:
        return JudgedWait(WaitState.MET)
    failed = [
        run
        for run in ended
        if run.outcome is not RunState.SUCCEEDED and any(_overlap(run.interval, gap) for gap in lacks)
    ]
    if wait.on_failed is OnFailed.FAIL and failed and not any(_runs_in(gap, live) for gap in lacks):
        last = failed[-1]
        return JudgedWait(WaitState.FAILED, f"{_said(last)}, for {shown(last.interval, run.timezone)}")
    named = [f"{shown(gap, run.timezone)} ({_why(gap, failed, live, upstream)})" for gap in lacks[:MAX_GAPS]]
    more = len(lacks) - MAX_GAPS
    return JudgedWait(WaitState.OPEN, ", ".join([*named, *([f"and {more} more"] if more > 0 else [])]))


def _may_count(run: RunHeader) -> bool:
    """True when the index of intervals can get this run at its end. Child runs are never in it."""
    return run.data_interval is not None and run.parent is None


def awaits(wait: PipelineWait, run: RunHeader, other: RunHeader) -> bool:
    """True when the success of another live run could meet a part of a wait."""
    if run.data_interval is None or other.data_interval is None or not _may_count(other):
        return False
    if upstream_of(wait, run) != other.pipeline or other.id == run.id:
        return False
    if wait.is_self:
        return other.data_interval.end <= run.data_interval.start
    return _overlap(wanted(wait, run.data_interval, ZoneInfo(run.timezone)), other.data_interval)


def wanted(wait: PipelineWait, own: DataInterval, zone: ZoneInfo) -> DataInterval:
    """The interval for which a run with the data interval `own` needs runs of another pipeline.

    `zone` is the zone of its own schedule.
    """
    if wait.last is None:
        return own
    return DataInterval(start=earlier(own.end, wait.last, zone), end=own.end)


def _before(own: DataInterval, index: IntervalIndex | None, live: Iterable[RunHeader]) -> DataInterval | None:
    """The latest earlier interval with a run, live or ended. None: none is known."""
    last = None if index is None else index.latest_until(own.start)
    known = [*([] if last is None else [last.interval]), *_live_until(own.start, live)]
    return max(known, key=lambda interval: (interval.end, interval.start), default=None)


def _live_until(moment: datetime, live: Iterable[RunHeader]) -> Iterator[DataInterval]:
    for run in live:
        if run.data_interval is not None and run.data_interval.end <= moment:
            yield run.data_interval


def _overlap(interval: DataInterval, other: DataInterval) -> bool:
    return interval.start < other.end and other.start < interval.end


def _runs_in(gap: DataInterval, live: Iterable[RunHeader]) -> list[RunHeader]:
    return [run for run in live if run.data_interval is not None and _overlap(run.data_interval, gap)]


def _why(gap: DataInterval, failed: Iterable[Ended], live: Iterable[RunHeader], upstream: Upstream) -> str:
    """Why no successful run covers a gap."""
    index = upstream.index
    if not upstream.exists:
        return "there is no such pipeline, or you may not see it"
    if under_way := _runs_in(gap, live):
        return f"run {under_way[0].id} is {under_way[0].state}"
    if index is None:
        return "no run of it has ended yet"
    if ended := [run for run in failed if _overlap(run.interval, gap)]:
        return _said(ended[-1])
    if not index.knows(gap):
        return "unknown: before the index of intervals begins"
    return "no run"


def _said(ended: Ended) -> str:
    return f"{'its run' if ended.run is None else f'run {ended.run}'} {ended.outcome}"
