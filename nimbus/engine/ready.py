"""Tasks that could start now, most urgent first."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import NamedTuple

from nimbus.domain.admission import Gate, Need, TaskRank, need_of, task_rank
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskRun

Key = tuple[RunId, TaskName]


class _Line(NamedTuple):
    """Tasks that wait for the same: a line by rank. Most tasks have no gate: one line for each need."""

    need: Need
    gates: tuple[Gate, ...]


class Waiting(NamedTuple):
    """Tasks that wait for the same."""

    first: Key
    """The most urgent one."""
    oldest: Key
    """That has been ready for the longest time."""
    size: int
    """How many there are."""


class _Closed(NamedTuple):
    """A gate that a task closed, since it could not pass."""

    by: Key
    gates: tuple[Gate, ...]
    """All that the task closed together."""
    lines: set[_Line]
    """Those that were found to wait there."""


class ReadyTasks:
    """A line by rank for each need and set of gates. Adding and taking cost O(log n).

    Tasks of one need wait for the same workers: when there is none for the first, there is none for the
    others, and none of them is asked about until a worker or a slot has come. Likewise nobody passes a gate
    (the limit of a run, a pool) before the first that could not, and other lines go on.
    """

    def __init__(self) -> None:
        self._tasks: dict[Key, tuple[_Line, TaskRank]] = {}
        self._lines: dict[_Line, list[TaskRank]] = {}
        """Also hold ranks of tasks that were discarded: `_tasks` says which count."""
        self._came: defaultdict[_Line, dict[Key, None]] = defaultdict(dict)
        """The tasks of each line, in the order in which they became ready."""
        self._heads: defaultdict[Need, list[tuple[TaskRank, _Line]]] = defaultdict(list)
        """The first of each line with open gates. Also hold earlier ones: `_head_of` says which count."""
        self._head_of: dict[_Line, TaskRank] = {}
        self._closed: set[Need] = set()
        """No worker was found for them since slots or workers last changed."""
        self._behind: dict[Gate, _Closed] = {}
        self._at_pools: Counter[str] = Counter()
        """How many tasks take something of each pool."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: Key) -> bool:
        return task in self._tasks

    def lines(self) -> Iterator[Waiting]:
        """What waits in each line. Taking one costs the same, however many wait in it."""
        for line, keys in self._came.items():
            if (head := self._head(line)) is not None:
                yield Waiting(_key(head), next(iter(keys)), len(keys))

    def add(self, run: Run, task: TaskRun) -> None:
        """Queue a task."""
        line = _Line(need_of(task.spec), _gates(run, task))
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
                self._at_pools.update(_pools(line))
            heap = self._lines.setdefault(line, [])
            heappush(heap, rank)
            if len(heap) > 2 * len(self._tasks) + 64:
                self._lines[line] = sorted(rank for other, rank in self._tasks.values() if other == line)
            self._promote(line)

    def discard(self, run: RunId, task: TaskName) -> None:
        """Take a task out, if it is in. A task that waited behind it at a gate may pass."""
        found = self._tasks.pop((run, task), None)
        if found is not None:
            self._leave((run, task), found[0])
        for gate in found[0].gates if found is not None else ():
            self.open(gate)

    def first(self) -> Key | None:
        """The most urgent task for which there may be a worker."""
        heads = [head for need in self._heads if need not in self._closed and (head := self._first(need))]
        return None if not heads else _key(min(heads))

    def close(self, run: RunId, task: TaskName, gates: tuple[Gate, ...] = ()) -> None:
        """A task cannot start now: it waits at these gates; without any, there is no worker for it."""
        if not gates:
            self._closed.add(self._tasks[run, task][0].need)
        for gate in gates:
            self._behind[gate] = _Closed((run, task), gates, set())

    def reopen(self) -> None:
        """There may be a worker for any task."""
        self._closed.clear()

    def open(self, gate: Gate) -> None:
        """The task that closed a gate may pass; so may the tasks at other gates that it closed with it."""
        closed = self._behind.pop(gate, None)
        if closed is None:
            return
        for line in closed.lines:
            self._promote(line)
        for other in closed.gates:
            self.open(other)

    def first_at_pool(self, pool: str) -> Key | None:
        """The task that waits at a pool, and that nobody overtakes; None: none does."""
        closed = self._behind.get(Gate("pool", pool))
        return None if closed is None else closed.by

    def waiting_at_pool(self, pool: str) -> int:
        """How many tasks take something of a pool."""
        return self._at_pools[pool]

    def _leave(self, task: Key, line: _Line) -> None:
        came = self._came[line]
        del came[task]
        self._at_pools.subtract(_pools(line))
        if not came:
            del self._came[line]

    def _promote(self, line: _Line) -> None:
        """Let the first of a line stand among those of its need."""
        rank = self._head(line)
        if rank is None and line not in self._head_of:
            del self._lines[line]
        if rank is None or self._head_of.get(line) == rank:
            return
        self._head_of[line] = rank
        heads = self._heads[line.need]
        heappush(heads, (rank, line))
        if len(heads) > 2 * len(self._head_of) + 64:
            heads[:] = [(rank, other) for other, rank in self._head_of.items() if other.need == line.need]
            heapify(heads)

    def _first(self, need: Need) -> TaskRank | None:
        heads = self._heads[need]
        while heads:
            rank, line = heads[0]
            if self._head_of.get(line) != rank:
                heappop(heads)
                continue
            head = self._head(line)
            closed = next((gate for gate in line.gates if gate in self._behind), None)
            if head is not None and closed is None and head == rank:
                return rank
            self._move(heads, line, head, closed)
        return None

    def _move(
        self, heads: list[tuple[TaskRank, _Line]], line: _Line, head: TaskRank | None, closed: Gate | None
    ) -> None:
        """Put what is right in the place of the first of `heads`: the line's head, or nothing."""
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

    def _head(self, line: _Line) -> TaskRank | None:
        heap = self._lines[line]
        while heap and self._tasks.get(_key(heap[0])) != (line, heap[0]):
            heappop(heap)
        return heap[0] if heap else None


def _gates(run: Run, task: TaskRun) -> tuple[Gate, ...]:
    of_run = () if run.max_parallel_tasks is None else (Gate("run", run.id),)
    return (*of_run, *(Gate("pool", name) for name in sorted(task.spec.pools)))


def _pools(line: _Line) -> Iterator[str]:
    return (gate.name for gate in line.gates if gate.kind == "pool")


def _key(rank: TaskRank) -> Key:
    return rank[2], rank[4]
