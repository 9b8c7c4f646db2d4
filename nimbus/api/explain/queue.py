"""Explains why a run is queued, as text for people. Pure: facts in, sentence out.

Runs may wait for each other in a circle, which only a person or a timeout ends. A run that has begun and now
waits keeps its place in `concurrency.limit`. A queued run that waits for this place, and that the first one
or its child run waits for, closes a circle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import TYPE_CHECKING, Protocol

from nimbus.domain.ids import RunId
from nimbus.domain.runs.child_runs import child_of, is_under_way
from nimbus.domain.runs.children import ItemState
from nimbus.domain.runs.lifecycle import is_ready
from nimbus.domain.runs.run import Places, Run, RunHeader, RunState
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.starts.places import TURN, Ranked, in_cluster, in_pipeline, run_rank, top_of
from nimbus.domain.starts.upstream import awaits, upstream_of
from nimbus.domain.starts.waits import PipelineWait

if TYPE_CHECKING:
    from nimbus.api.explain.task import ClusterFacts

MAX_NAMED = 3


class CountedRun(Ranked, Protocol):
    """A run, or its entry in lists."""

    @property
    def paused(self) -> object | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """Facts that a queued run depends on."""

    live: Collection[CountedRun]
    """Runs that are not final: those of its pipeline or, with `max_running`, of all pipelines."""
    limit: int | None
    """`concurrency.limit` of the active release."""
    max_running: int | None
    """`runs.max_running`."""
    held: str | None = None
    """The hold that covers the pipeline, as text; None: there is none."""
    share: Callable[[], str] = lambda: ""
    """How many of them the team of the pipeline has, as the end of a sentence."""


def why_queued(run: Run, view: QueueView, leader: str | None, circle: str = "") -> str:
    """Explain a queued run: its place, what it waits for, and the limit.

    `circle`: why the runs that it waits for wait for it, if they do.
    """
    if leader is None:
        return "no scheduler leads at the moment; it starts when one does and there is room"
    if view.held is not None and run.parent is None and run.started_at is None:
        return f"{view.held}; it starts after that"
    own = [other for other in view.live if other.pipeline == run.pipeline]
    if holders := holders_of(run, view):
        of = f"of pipeline {run.pipeline}: concurrency.limit is {view.limit}{circle}"
        return _sentence(run, own, holders, of)
    if holders := cluster_holders_of(run, view):
        tops = in_cluster(view.live)
        counted = [other for other in view.live if top_of(other) not in tops]
        of = f"of the cluster: runs.max_running is {view.max_running}{circle}"
        return _sentence(run, counted, holders, of) + view.share()
    return "there is room: the leader starts it next"


def holders_of(run: Run, view: QueueView) -> list[CountedRun]:
    """The runs that fill `concurrency.limit`, if a queued run waits for one of their places."""
    held = [other for other in view.live if other.pipeline == run.pipeline and in_pipeline(other)]
    return [] if in_pipeline(run) or view.limit is None or len(held) < view.limit else held


def cluster_holders_of(run: Run, view: QueueView) -> list[CountedRun]:
    """The tops of the trees that fill `runs.max_running`, if a queued run waits for one of their places."""
    tops = in_cluster(view.live)
    if view.max_running is None or len(tops) < view.max_running or top_of(run) in tops:
        return []
    return [other for other in view.live if other.id in tops]


def _sentence(run: Run, among: Collection[CountedRun], under_way: list[CountedRun], limit: str) -> str:
    queued = [other for other in among if other.state is RunState.QUEUED and other.paused is None]
    rank = run_rank(run)
    place = 1 + sum(run_rank(other) < rank for other in queued)
    one_of = "" if len(under_way) == 1 else "one of "
    what = f"{one_of}{run_names(under_way)}"
    turn = f"; one run in {TURN} that start is a backfill's" if run.backfill is not None else ""
    return f"{_ordinal(place)} of {len(queued)} in the queue, waits for {what} to end, {limit}{turn}"


def run_names(runs: Sequence[CountedRun]) -> str:
    """The number of runs, and the ids of the oldest."""
    oldest = nsmallest(MAX_NAMED, runs, key=lambda run: (run.created_at, run.id))
    named = ", ".join(run.id for run in oldest)
    if len(runs) == 1:
        return f"run {named}"
    return f"{len(runs)} runs ({named}{', ...' if len(runs) > MAX_NAMED else ''})"


def _ordinal(number: int) -> str:
    teen = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


_Seen = dict[RunId, bool | None]
"""Runs that were looked at; True: it waits for another one, or another one for it. None: it will go on."""


def circle_of(run: Run, facts: ClusterFacts) -> str:
    """The end of the explanation of a queued run that waits for a circle; empty: it does not."""
    seen: _Seen = {}
    return _told(seen) if _is_stuck(run, facts, seen) else ""


def circle_through(run: Run, task: TaskRun, facts: ClusterFacts) -> str:
    """The same for a ready task that waits for runs of pipelines."""
    for queued in _awaited(run, task, facts):
        seen: _Seen = {}
        if _is_stuck(queued, facts, seen) and seen.get(run.id):
            return _told(seen)
    return ""


def _told(seen: _Seen) -> str:
    names = sorted(run for run, in_circle in seen.items() if in_circle)
    return (
        f"; this is a circle: {' and '.join(names)} wait for each other. "
        "Stop one of them, mark the task that waits, or raise the limit"
    )


def _is_stuck(queued: RunHeader, facts: ClusterFacts, seen: _Seen) -> bool:
    """True when all runs whose places it waits for wait themselves, for runs in `seen` or stuck runs."""
    if queued.id in seen:
        return seen[queued.id] is not None
    seen[queued.id] = False
    run = facts.run(queued.id)
    holders = [] if run is None or facts.queue is None else holders_of(run, facts.queue(run))
    if holders and all(_waits(facts.run(holder.id), facts, seen) for holder in holders):
        return True
    seen[queued.id] = None
    return False


def _waits(run: Run | None, facts: ClusterFacts, seen: _Seen) -> bool:
    if run is None or run.holds is Places.ALL:  # it has work
        return False
    if run.state is RunState.QUEUED:
        return _is_stuck(run, facts, seen)
    seen[run.id] = any(_waits_for(run, task, facts, seen) for task in run.tasks.in_order())
    return bool(seen[run.id])


def _waits_for(run: Run, task: TaskRun, facts: ClusterFacts, seen: _Seen) -> bool:
    """True when a task waits for stuck runs: a queued one, or one of its child runs."""
    for queued in _awaited(run, task, facts):
        if _is_stuck(queued, facts, seen):
            seen[queued.id] = True
            return True
    below = [] if task.children is None or not is_under_way(task) else task.children.having(ItemState.OPEN)
    children = (child_of(run, task.spec.name, index) for index in below)
    return any(_waits(facts.run(child), facts, seen) for child in children if child is not None)


def _awaited(run: Run, task: TaskRun, facts: ClusterFacts) -> Iterator[RunHeader]:
    """The queued runs that a task waits for."""
    if not is_ready(run, task):
        return
    for wait in task.spec.waits_for:
        if isinstance(wait, PipelineWait):
            for other in facts.upstream(upstream_of(wait, run)).live:
                if other.state is RunState.QUEUED and awaits(wait, run, other):
                    yield other
