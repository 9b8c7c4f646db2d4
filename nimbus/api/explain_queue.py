"""Explains why a run is queued, as text for people. Pure: facts in, sentence out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Protocol

from nimbus.domain.places import in_cluster, in_pipeline, top_of
from nimbus.domain.run import Run, RunState
from nimbus.domain.run_rank import TURN, Ranked, run_rank

MOST_NAMED = 3
"""Limit of runs under way that a sentence names."""


class LiveRun(Ranked, Protocol):
    """A run, or its entry in lists."""

    @property
    def paused(self) -> object | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """Facts that a queued run depends on."""

    live: Collection[LiveRun]
    """Runs that are not final: those of its pipeline or, with `max_running`, of all pipelines."""
    limit: int | None
    """`concurrency.limit` of the active release."""
    max_running: int | None
    """`runs.max_running`."""


def why_queued(run: Run, view: QueueView, leader: str | None, circle: str = "") -> str:
    """Explain a queued run: its place, what it waits for, and the limit.

    `circle`: why the runs that it waits for wait for it, if they do.
    """
    if leader is None:
        return "no scheduler leads at the moment; it starts when one does and there is room"
    own = [other for other in view.live if other.pipeline == run.pipeline]
    if holders := holders_of(run, view):
        of = f"of pipeline {run.pipeline}: concurrency.limit is {view.limit}{circle}"
        return _sentence(run, own, holders, of)
    if holders := cluster_holders_of(run, view):
        tops = in_cluster(view.live)
        counted = [other for other in view.live if top_of(other) not in tops]
        of = f"of the cluster: runs.max_running is {view.max_running}{circle}"
        return _sentence(run, counted, holders, of)
    return "there is room: the leader starts it next"


def holders_of(run: Run, view: QueueView) -> list[LiveRun]:
    """The runs that fill `concurrency.limit`, if a queued run waits for one of their places."""
    held = [other for other in view.live if other.pipeline == run.pipeline and in_pipeline(other)]
    return [] if in_pipeline(run) or view.limit is None or len(held) < view.limit else held


def cluster_holders_of(run: Run, view: QueueView) -> list[LiveRun]:
    """The tops of the trees that fill `runs.max_running`, if a queued run waits for one of their places."""
    tops = in_cluster(view.live)
    if view.max_running is None or len(tops) < view.max_running or top_of(run) in tops:
        return []
    return [other for other in view.live if other.id in tops]


def _sentence(run: Run, among: Collection[LiveRun], under_way: list[LiveRun], limit: str) -> str:
    queued = [other for other in among if other.state is RunState.QUEUED and other.paused is None]
    rank = run_rank(run)
    place = 1 + sum(run_rank(other) < rank for other in queued)
    one_of = "" if len(under_way) == 1 else "one of "
    what = f"{one_of}{run_names(under_way)}"
    turn = f"; one run in {TURN} that start is a backfill's" if run.backfill is not None else ""
    return f"{_ordinal(place)} of {len(queued)} in the queue, waits for {what} to end, {limit}{turn}"


def run_names(runs: Sequence[LiveRun]) -> str:
    """The number of runs, and the ids of the oldest."""
    oldest = nsmallest(MOST_NAMED, runs, key=lambda run: (run.created_at, run.id))
    named = ", ".join(run.id for run in oldest)
    if len(runs) == 1:
        return f"run {named}"
    return f"{len(runs)} runs ({named}{', ...' if len(runs) > MOST_NAMED else ''})"


def _ordinal(number: int) -> str:
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
