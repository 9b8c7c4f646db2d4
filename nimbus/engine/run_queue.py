"""Which runs are under way, which are queued, and which of these starts next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable

from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.run import RunState
from nimbus.domain.run_rank import Ranked, RunRank, run_rank


class RunQueue:
    """A queue for each pipeline. A run costs O(log n), the next one O(pipelines that have a queue)."""

    def __init__(self, limit_of: Callable[[PipelineName], int | None], max_running: int | None) -> None:
        self._limit_of = limit_of
        """Most runs of a pipeline that are under way at once; 0: none starts now."""
        self._max_running = max_running
        self._under_way: dict[RunId, PipelineName] = {}
        self._running: defaultdict[PipelineName, int] = defaultdict(int)
        self._ranks: dict[RunId, tuple[PipelineName, RunRank]] = {}
        self._lines: dict[PipelineName, list[RunRank]] = {}
        self._closed = True
        """No queued run can start since a run, or a limit, last changed."""

    def put(self, run: Ranked) -> None:
        """Take in a run that is not final."""
        self.discard(run.id)
        if run.state is not RunState.QUEUED:
            self._under_way[run.id] = run.pipeline
            self._running[run.pipeline] += 1
            return
        rank = run_rank(run)
        self._ranks[run.id] = run.pipeline, rank
        insort(self._lines.setdefault(run.pipeline, []), rank)

    def discard(self, run: RunId) -> None:
        """Take a run out, if it is in."""
        self._closed = False
        pipeline = self._under_way.pop(run, None)
        if pipeline is not None:
            self._running[pipeline] -= 1
            if not self._running[pipeline]:
                del self._running[pipeline]
        if run in self._ranks:
            pipeline, rank = self._ranks.pop(run)
            line = self._lines[pipeline]
            del line[bisect_left(line, rank)]
            if not line:
                del self._lines[pipeline]

    def has_room(self, pipeline: PipelineName) -> bool:
        """Whether one more run of a pipeline may be under way."""
        if self._max_running is not None and len(self._under_way) >= self._max_running:
            return False
        limit = self._limit_of(pipeline)
        return limit is None or self._running.get(pipeline, 0) < limit

    def first(self) -> RunId | None:
        """The queued run that starts next; None: there is no room for any."""
        if self._closed:
            return None
        heads = [line[0] for pipeline, line in self._lines.items() if self.has_room(pipeline)]
        self._closed = not heads
        return min(heads)[-1] if heads else None

    def reopen(self) -> None:
        """A limit may have changed."""
        self._closed = False

    def close(self) -> None:
        """No queued run can start now."""
        self._closed = True
