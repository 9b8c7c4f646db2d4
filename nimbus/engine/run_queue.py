"""Which runs are under way, which are queued, and which of these starts next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.run import RunState
from nimbus.domain.run_rank import TURN, Ranked, RunRank, run_rank


class _Line(NamedTuple):
    """Child runs stand in a line of their own: a run that waits for room in the cluster holds none back."""

    pipeline: PipelineName
    is_child: bool


class RunQueue:
    """A queue for each pipeline. A run costs O(log n), the next one O(pipelines that have a queue).

    Runs of backfills have low priority. So that others do not starve them, one run in `TURN` that starts is
    theirs if one waits: of each pipeline, since it has a limit of its own, and of all together.
    """

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
        self._backfills: dict[_Line, list[RunRank]] = {}
        """Runs of backfills among those of `_lines`."""
        self._since: defaultdict[_Line | None, int] = defaultdict(int)
        """Queued runs that have started since one of a backfill did: of a line; None: of all. After a
        takeover it begins anew."""
        self._closed = True
        """No queued run can start since a run, or a limit, last changed."""

    def put(self, run: Ranked) -> None:
        """Take in a run that is not final."""
        waited = run.id in self._ranks
        self.discard(run.id)
        if run.state is not RunState.QUEUED:
            self._under_way[run.id] = run.pipeline
            self._running[run.pipeline] += 1
            if run.parent is not None:
                self._children.add(run.id)
            if waited and run.parent is None:
                self._count_start(run)
            return
        rank, line = run_rank(run), _Line(run.pipeline, run.parent is not None)
        self._ranks[run.id] = line, rank
        insort(self._lines.setdefault(line, []), rank)
        if run.backfill is not None:
            insort(self._backfills.setdefault(line, []), rank)

    def _count_start(self, run: Ranked) -> None:
        for whose in (_Line(run.pipeline, is_child=False), None):
            self._since[whose] = 0 if run.backfill is not None else self._since[whose] + 1

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
            _take_out(self._lines, key, rank)
            _take_out(self._backfills, key, rank)
            if key not in self._lines:
                self._since.pop(key, None)

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
        open_to = [line for line in self._lines if self.has_room(line.pipeline, is_child=line.is_child)]
        self._closed = not open_to
        if self._since[None] >= TURN - 1:
            turns = [self._backfills[line][0] for line in open_to if line in self._backfills]
            if turns:
                return min(turns)[-1]
        heads = [(self._lines[line][0], self._head(line)) for line in open_to]
        return min(heads)[1] if heads else None

    def _head(self, line: _Line) -> RunId:
        """The run of a line that starts next; if it is its backfills' turn, in the place of its first."""
        turn = line in self._backfills and self._since[line] >= TURN - 1
        return (self._backfills if turn else self._lines)[line][0][-1]

    def reopen(self) -> None:
        """A limit may have changed."""
        self._closed = False

    def close(self) -> None:
        """No queued run can start now."""
        self._closed = True


def _take_out(lines: dict[_Line, list[RunRank]], key: _Line, rank: RunRank) -> None:
    line = lines.get(key, [])
    place = bisect_left(line, rank)
    if line[place : place + 1] == [rank]:
        del line[place]
        if not line:
            del lines[key]
