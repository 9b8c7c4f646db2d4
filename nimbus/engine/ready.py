"""Tasks that could start now, in the order of teams and of urgency, and which tasks still wait for others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from nimbus.domain.ids import PipelineName, RunId, TaskName
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.starts.admission import Gate, Need, TaskRank, Want, need_of, task_rank


class Needs:
    """Number of unmet needs of each task. It counts, so that an END costs only its dependents.

    A final task stays final, so the counts only fall.
    """

    def __init__(self, run: Run) -> None:
        self._dependents = run.tasks.dependents
        self._unmet = dict(run.tasks.needed)
        for task in run.tasks.in_order() if any(state.is_final for state in run.tasks.counts) else ():
            if task.state.is_final:
                list(self.ended(task.spec.name))

    def met(self, task: TaskName) -> bool:
        """True when all needs of a task are final."""
        return task not in self._unmet

    def ended(self, task: TaskName) -> Iterator[TaskName]:
        """Note that a task is final. Yield the tasks whose needs are all final now."""
        for dependent in self._dependents(task):
            self._unmet[dependent] -= 1
            if not self._unmet[dependent]:
                del self._unmet[dependent]
                yield dependent


Key = tuple[RunId, TaskName]


class _TaskLine(NamedTuple):
    """Key of a line: tasks of a team that wait for the same need and gates. Most tasks have no gates."""

    want: Want
    gates: tuple[Gate, ...]

    @property
    def need(self) -> Need:
        return self.want.need


class WaitingLine(NamedTuple):
    """Summary of a line: tasks that wait for the same need and gates."""

    first: Key
    oldest: Key
    """The task that has been ready for the longest time."""
    size: int


class _Closed(NamedTuple):
    """A gate that is closed, because its first task could not pass it."""

    by: Key
    gates: tuple[Gate, ...]
    lines: set[_TaskLine]


class ReadyTasks:
    """Ready tasks, in one line by rank for each team, need and gates. Adding and removing cost O(log n).

    The first task is of the team that has the smallest part of what it wants, by its weight: see `first`.
    Of the tasks of a team, the most urgent is first. With one team the order is that of urgency.

    Tasks with one need wait for the same workers. If there is no worker for the first task, there is none for
    the others, so none of them is decided until a worker or a slot becomes free. In the same way, no task
    passes a gate (the limit of a run, a pool) before the first task that could not. Other lines go on.
    """

    def __init__(
        self,
        team_of: Callable[[PipelineName], str] = lambda _: "",
        part: Callable[[Want], float] = lambda _: 0.0,
    ) -> None:
        self._team_of = team_of
        self._part = part
        """The part of what a team wants that it has, by its weight."""
        self._wants: dict[tuple[str, Need, tuple[str, ...]], Want] = {}
        self._tasks: dict[Key, tuple[_TaskLine, TaskRank]] = {}
        self._lines: dict[_TaskLine, list[TaskRank]] = {}
        """Heaps of ranks. They may contain discarded tasks: only those in `_tasks` are valid."""
        self._came: defaultdict[_TaskLine, dict[Key, None]] = defaultdict(dict)
        """The tasks of each line, in the order in which they became ready."""
        self._heads: defaultdict[Want, list[tuple[TaskRank, _TaskLine]]] = defaultdict(list)
        """Heads of lines with open gates. May contain old entries: `_head_of` has the valid ones."""
        self._head_of: dict[_TaskLine, TaskRank] = {}
        self._closed: set[Need] = set()
        """Needs for which there was no worker since slots or workers last changed."""
        self._behind: dict[Gate, _Closed] = {}
        self._at_pools: Counter[str] = Counter()
        self.of_team: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: Key) -> bool:
        return task in self._tasks

    def lines(self) -> Iterator[WaitingLine]:
        """A summary of each line. The cost does not depend on the number of tasks."""
        for line, keys in self._came.items():
            if (head := self._head(line)) is not None:
                yield WaitingLine(_key(head), next(iter(keys)), len(keys))

    def add(self, run: Run, task: TaskRun) -> None:
        """Queue a task."""
        pools = tuple(sorted(task.spec.pools))
        takes = self._team_of(run.pipeline), need_of(task.spec), pools
        line = _TaskLine(self._wants.setdefault(takes, Want(*takes)), _gates(run, pools))
        rank = task_rank(run, task)
        self._closed.discard(line.need)
        for gate in line.gates:
            self.open(gate)
        key = run.id, task.spec.name
        before = self._tasks.get(key)
        if before != (line, rank):
            if before is not None and before[0] != line:
                self._leave(key, before[0])
            self._tasks[key] = line, rank
            if key not in self._came[line]:
                self._came[line][key] = None
                self._at_pools.update(line.want.pools)
                self.of_team[line.want.team] += 1
            heap = self._lines.setdefault(line, [])
            heappush(heap, rank)
            if len(heap) > 2 * len(self._tasks) + 64:
                self._lines[line] = sorted(rank for other, rank in self._tasks.values() if other == line)
            self._promote(line)

    def discard(self, run: RunId, task: TaskName) -> None:
        """Remove a task, if it is there. Tasks that waited behind it at a gate may pass."""
        entry = self._tasks.pop((run, task), None)
        if entry is not None:
            self._leave((run, task), entry[0])
        for gate in entry[0].gates if entry is not None else ():
            self.open(gate)

    def first(self, *, slots_free: bool = True) -> Key | None:
        """The task to decide next; None: there may be a worker for none.

        The team that has the smallest part of something that it wants is next. Of its most urgent tasks, the
        first is taken of which no other team wants the same and has a smaller part.

        `slots_free`: False, no worker has a free slot, so only tasks whose drivers run in clusters may start.
        Tasks that use a pool are decided all the same: the first that does not fit holds the pool.
        """
        heads = [
            (head, want)
            for want in tuple(self._heads)
            if want.need not in self._closed
            and (slots_free or want.need.in_cluster or want.pools)
            and (head := self._first(want))
        ]
        if not heads:
            return None
        if len({want.team for _, want in heads}) == 1:
            return _key(min(heads)[0])
        parts = {want: self._part(want) for _, want in heads}
        _, _, team = min((parts[want], head, want.team) for head, want in heads)
        others = [want for _, want in heads if want.team != team]
        own = sorted(head for head in heads if head[1].team == team)
        return next(
            _key(head)
            for head, want in own
            if not any(parts[other] < parts[want] and want.rivals(other) for other in others)
        )

    def close(self, run: RunId, task: TaskName, gates: tuple[Gate, ...] = ()) -> None:
        """Note that a task cannot start now: it waits at `gates`; if there are none, for a worker."""
        if not gates:
            self._closed.add(self._tasks[run, task][0].need)
        for gate in gates:
            self._behind[gate] = _Closed((run, task), gates, set())

    def reopen(self) -> None:
        """Note that there may be a worker for any task."""
        self._closed.clear()

    def open(self, gate: Gate) -> None:
        """Open a gate, and the other gates that the same task closed."""
        closed = self._behind.pop(gate, None)
        if closed is None:
            return
        for line in closed.lines:
            self._promote(line)
        for other in closed.gates:
            self.open(other)

    def open_pools_of(self, run: RunId) -> None:
        """Open the pools that tasks of a run hold: the run is at its limit, so they wait for that first."""
        for pool in tuple(self._at_pools):
            if (first := self.first_at_pool(pool)) is not None and first[0] == run:
                self.open(Gate("pool", pool))

    def first_at_pool(self, pool: str) -> Key | None:
        """The first task that waits for a pool, which no other overtakes; None: there is none."""
        closed = self._behind.get(Gate("pool", pool))
        return None if closed is None else closed.by

    def waiting_at_pool(self, pool: str) -> int:
        """Number of tasks that use a pool."""
        return self._at_pools[pool]

    def _leave(self, task: Key, line: _TaskLine) -> None:
        came = self._came[line]
        del came[task]
        self._at_pools.subtract(line.want.pools)
        self.of_team[line.want.team] -= 1
        if not came:
            del self._came[line]

    def _promote(self, line: _TaskLine) -> None:
        """Put the first task of a line into the heap of its need."""
        rank = self._head(line)
        if rank is None and line not in self._head_of:
            del self._lines[line]
        if rank is None or self._head_of.get(line) == rank:
            return
        self._head_of[line] = rank
        heads = self._heads[line.want]
        heappush(heads, (rank, line))
        if len(heads) > 2 * len(self._head_of) + 64:
            heads[:] = [(rank, other) for other, rank in self._head_of.items() if other.want == line.want]
            heapify(heads)

    def _first(self, want: Want) -> TaskRank | None:
        heads = self._heads[want]
        while heads:
            rank, line = heads[0]
            if self._head_of.get(line) != rank:
                heappop(heads)
                continue
            head = self._head(line)
            closed = next((gate for gate in line.gates if gate in self._behind), None) if line.gates else None
            if head is not None and closed is None and head == rank:
                return rank
            self._move(heads, line, head, closed)
        del self._heads[want]
        return None

    def _move(
        self,
        heads: list[tuple[TaskRank, _TaskLine]],
        line: _TaskLine,
        head: TaskRank | None,
        closed: Gate | None,
    ) -> None:
        """Replace the first entry of `heads` by the line's head, or remove it."""
        if head is not None and closed is None:
            self._head_of[line] = head
            heapreplace(heads, (head, line))
            return
        heappop(heads)
        del self._head_of[line]
        if head is None:
            del self._lines[line]
        elif closed is not None:
            self._behind[closed].lines.add(line)

    def _head(self, line: _TaskLine) -> TaskRank | None:
        heap = self._lines[line]
        while heap and self._tasks.get(_key(heap[0])) != (line, heap[0]):
            heappop(heap)
        return heap[0] if heap else None


def _gates(run: Run, pools: tuple[str, ...]) -> tuple[Gate, ...]:
    of_run = () if run.max_parallel_tasks is None else (Gate("run", run.id),)
    return (*of_run, *(Gate("pool", name) for name in pools))


def _key(rank: TaskRank) -> Key:
    return rank[2], rank[4]
