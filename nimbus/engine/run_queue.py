"""Places that runs hold, queued runs, and which queued run starts next."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Collection
from typing import NamedTuple, TypeVar

from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.runs.run import Places, RunState
from nimbus.domain.starts.places import TURN, Ranked, RunRank, in_pipeline, run_rank, top_of

_Key = TypeVar("_Key")


class _RunLine(NamedTuple):
    """Key of a line: runs that wait for the same places."""

    pipeline: PipelineName
    top: RunId | None = None
    """The top of the runs' tree; None: no other run of the tree can have a place in the cluster's limit,
    and none has begun."""
    needs: Places = Places.ALL
    holds: Places = Places.NONE


class RunQueue:
    """A queue for each pipeline. Adding a run costs O(log n), finding the next one O(pipelines with a queue).

    The next run is of the team that has the fewest runs in the cluster's limit, by the weight of the team.

    Runs of backfills have low priority. So that other runs do not starve them, one of `TURN` started runs is
    from a backfill if one waits. This is counted for each pipeline, which has its own limit, and each team.
    """

    def __init__(
        self,
        limit_of: Callable[[PipelineName], int | None],
        max_running: int | None,
        team_of: Callable[[PipelineName], str] = lambda _: "",
        weight_of: Callable[[str], int] = lambda _: 1,
        is_held: Callable[[PipelineName], bool] = lambda _: False,
    ) -> None:
        self._is_held = is_held
        self._team_of = team_of
        self._weight_of = weight_of
        self._limit_of = limit_of
        """Limit of a pipeline's runs under way; 0: no run starts now."""
        self._max_running = max_running
        self._holds: dict[RunId, PipelineName] = {}
        """Runs that count for the limit of their pipeline."""
        self._in_cluster: dict[RunId, tuple[RunId, str]] = {}
        """Runs that count for the cluster's limit, with the tops of their trees, and their teams."""
        self._trees: defaultdict[RunId, int] = defaultdict(int)
        """Number of these runs in each tree; a tree counts once."""
        self._of_team: defaultdict[str, defaultdict[RunId, int]] = defaultdict(lambda: defaultdict(int))
        """The same by team. A tree with runs of two teams counts for both."""
        self._running: defaultdict[PipelineName, int] = defaultdict(int)
        self._ranks: dict[RunId, tuple[_RunLine, RunRank]] = {}
        self._lines: dict[_RunLine, list[RunRank]] = {}
        self._backfills: dict[_RunLine, list[RunRank]] = {}
        self._since: defaultdict[_RunLine | str, int] = defaultdict(int)
        """Runs started since the last one of a backfill, for each line and team. A takeover resets it."""
        self._closed = True
        """True while no queued run can start, until a run or a limit changes."""

    def put(self, run: Ranked, needs: Places = Places.ALL, *, may_start: bool = True) -> None:
        """Add or update a run that is not final. `needs`: the places that it needs to go on."""
        waited = run.id in self._ranks
        self.discard(run.id)
        self._take_places(run)
        if run.state is not RunState.QUEUED:
            if waited and run.parent is None:
                self._count_start(run)
            return
        if not may_start:
            return
        is_alone = run.parent is None and run.holds is Places.NONE and run.started_at is None
        line = _RunLine(run.pipeline, None if is_alone else top_of(run), needs, run.holds)
        rank = run_rank(run)
        self._ranks[run.id] = line, rank
        insort(self._lines.setdefault(line, []), rank)
        if run.backfill is not None:
            insort(self._backfills.setdefault(line, []), rank)

    def _take_places(self, run: Ranked) -> None:
        if in_pipeline(run):
            self._holds[run.id] = run.pipeline
            self._running[run.pipeline] += 1
        if run.holds is Places.ALL:
            top, team = self._in_cluster[run.id] = top_of(run), self._team_of(run.pipeline)
            self._trees[top] += 1
            self._of_team[team][top] += 1

    def _count_start(self, run: Ranked) -> None:
        for whose in (_RunLine(run.pipeline), self._team_of(run.pipeline)):
            self._since[whose] = 0 if run.backfill is not None else self._since[whose] + 1

    def discard(self, run: RunId) -> None:
        """Remove a run, if it is there."""
        self.withdraw(run)
        self._closed = False
        if (counted := self._in_cluster.pop(run, None)) is not None:
            top, team = counted
            _take_one(self._trees, top)
            _take_one(self._of_team[team], top)
        if (pipeline := self._holds.pop(run, None)) is not None:
            _take_one(self._running, pipeline)

    def withdraw(self, run: RunId) -> None:
        """Keep a queued run from starting. It keeps its places."""
        if run in self._ranks:
            key, rank = self._ranks.pop(run)
            _take_out(self._lines, key, rank)
            _take_out(self._backfills, key, rank)
            if key not in self._lines:
                self._since.pop(key, None)

    def has_room(
        self,
        pipeline: PipelineName,
        *,
        top: RunId | None = None,
        needs: Places = Places.ALL,
        holds: Places = Places.NONE,
    ) -> bool:
        """True when a run of a pipeline and a tree that holds some places can have all that it needs."""
        lacks_cluster = needs is Places.ALL and holds is not Places.ALL and top not in self._trees
        if lacks_cluster and self._max_running is not None and len(self._trees) >= self._max_running:
            return False
        limit = self._limit_of(pipeline)
        if holds is not Places.NONE or limit is None:
            return True
        return limit > 0 if needs is Places.NONE else self._running.get(pipeline, 0) < limit

    def first(self) -> RunId | None:
        """The queued run that starts next; None: no run has room."""
        if self._closed:
            return None
        open_to = [line for line in self._lines if self._is_open(line)]
        self._closed = not open_to
        if not open_to:
            return None
        heads = [(self._lines[line][0], line, self._team_of(line.pipeline)) for line in open_to]
        _, _, team = min((self.running(of) / self._weight_of(of), head, of) for head, _, of in heads)
        own = [(head, line) for head, line, of in heads if of == team]
        if self._since[team] >= TURN - 1:
            turns = [self._backfills[line][0] for _, line in own if line in self._backfills]
            if turns:
                return min(turns)[-1]
        return min((head, self._head(line)) for head, line in own)[1]

    def queued_teams(self) -> set[str]:
        """Teams with queued runs."""
        return {self._team_of(line.pipeline) for line in self._lines}

    def running(self, team: str) -> int:
        """How many runs of a team count for the cluster's limit."""
        return len(self._of_team.get(team, ()))

    def teams(self) -> Collection[str]:
        """Teams that have or had runs under way."""
        return self._of_team.keys()

    def _is_open(self, line: _RunLine) -> bool:
        has_room = self.has_room(line.pipeline, top=line.top, needs=line.needs, holds=line.holds)
        return has_room and not (line.top is None and self._is_held(line.pipeline))

    def _head(self, line: _RunLine) -> RunId:
        """The run of a line that starts next: its first, or, at a backfill's turn, its first backfill run."""
        turn = line in self._backfills and self._since[line] >= TURN - 1
        return (self._backfills if turn else self._lines)[line][0][-1]

    def reopen(self) -> None:
        """Note that a limit may have changed."""
        self._closed = False

    def close(self) -> None:
        """Note that no queued run can start now."""
        self._closed = True


def _take_one(counts: defaultdict[_Key, int], key: _Key) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _take_out(lines: dict[_RunLine, list[RunRank]], key: _RunLine, rank: RunRank) -> None:
    line = lines.get(key, [])
    place = bisect_left(line, rank)
    if line[place : place + 1] == [rank]:
        del line[place]
        if not line:
            del lines[key]
