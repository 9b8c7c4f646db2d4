"""Which runs are under way, which are queued, and which of these starts next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.run import RunState
from nimbus.domain.run_rank import Ranked, RunRank, run_rank


class _Line(NamedTuple):
    """Child runs stand in a line of their own: a run that waits for room in the cluster holds none back."""

    pipeline: PipelineName
    is_child: bool


class RunQueue:
    """A queue for each pipeline. A run costs O(log n), the next one O(pipelines that have a queue)."""

    def __init__(self, limit_of: Callable[[PipelineName], int | None], max_running: int | None) -> None:
        self._limit_of = limit_of
        """Most runs of a pipeline that are under way at once; 0: none starts now."""
        self._max_running = max_running
        self._under_way: dict[RunId, PipelineName] = {}
        self._children: set[RunId] = set()
        """Of those under way: child runs. They need no room of the cluster's, since their parents have it."""
        self._running: defaultdict[PipelineName, int] = defaultdict(int)
        self._ranks: dict[RunId, tuple[_Line, RunRank]] = {}
        self._lines: dict[_Line, list[RunRank]] = {}
        self._closed = True
        """No queued run can start since a run, or a limit, last changed."""

    def put(self, run: Ranked) -> None:
        """Take in a run that is not final."""
        self.discard(run.id)
        if run.state is not RunState.QUEUED:
            self._under_way[run.id] = run.pipeline
            self._running[run.pipeline] += 1
            if run.parent is not None:
                self._children.add(run.id)
            return
        rank, line = run_rank(run), _Line(run.pipeline, run.parent is not None)
        self._ranks[run.id] = line, rank
        insort(self._lines.setdefault(line, []), rank)

    def discard(self, run: RunId) -> None:
        """Take a run out, if it is in."""
        self._closed = False
        self._children.discard(run)
        pipeline = self._under_way.pop(run, None)
        if pipeline is not None:
            self._running[pipeline] -= 1
            if not self._running[pipeline]:
                del self._running[pipeline]
        if run in self._ranks:
            key, rank = self._ranks.pop(run)
            line = self._lines[key]
            del line[bisect_left(line, rank)]
            if not line:
                del self._lines[key]

    def has_room(self, pipeline: PipelineName, *, is_child: bool = False) -> bool:
        """Whether one more run of a pipeline may be under way."""
        counted = len(self._under_way) - len(self._children)
        if not is_child and self._max_running is not None and counted >= self._max_running:
            return False
        limit = self._limit_of(pipeline)
        return limit is None or self._running.get(pipeline, 0) < limit

    def first(self) -> RunId | None:
        """The queued run that starts next; None: there is no room for any."""
        if self._closed:
            return None
        heads = [
            line[0]
            for (pipeline, is_child), line in self._lines.items()
            if self.has_room(pipeline, is_child=is_child)
        ]
        self._closed = not heads
        return min(heads)[-1] if heads else None

    def reopen(self) -> None:
        """A limit may have changed."""
        self._closed = False

    def close(self) -> None:
        """No queued run can start now."""
        self._closed = True
