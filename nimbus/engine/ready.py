"""Tasks that could start now, most urgent first."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from heapq import heappop, heappush

from nimbus.domain.admission import Need, need_of
from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.pipeline import Priority
from nimbus.domain.run import Run, TaskRun

Rank = tuple[Priority, datetime, RunId, Priority, TaskName]
"""By the run's priority, its age, the task's priority; ids make it a total order."""
Key = tuple[RunId, TaskName]


class ReadyTasks:
    """A queue by rank for each need. Adding and taking cost O(log n).

    Tasks of one need wait for the same workers: when there is none for the first, there is none for the
    others, and none of them is asked about until a worker or a slot has come.
    """

    def __init__(self) -> None:
        self._tasks: dict[Key, tuple[Need, Rank]] = {}
        self._heaps: defaultdict[Need, list[Rank]] = defaultdict(list)
        """Also hold ranks of tasks that were discarded: `_tasks` says which count."""
        self._closed: set[Need] = set()
        """No worker was found for them since slots or workers last changed."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, task: Key) -> bool:
        return task in self._tasks

    def add(self, run: Run, task: TaskRun) -> None:
        """Queue a task."""
        need = need_of(task.spec)
        rank = (run.priority, run.created_at, run.id, task.spec.priority, task.spec.name)
        self._closed.discard(need)
        if self._tasks.get((run.id, task.spec.name)) != (need, rank):
            self._tasks[run.id, task.spec.name] = need, rank
            heap = self._heaps[need]
            heappush(heap, rank)
            if len(heap) > 2 * len(self._tasks) + 64:
                self._heaps[need] = sorted(rank for other, rank in self._tasks.values() if other == need)

    def discard(self, run: RunId, task: TaskName) -> None:
        """Take a task out, if it is in."""
        self._tasks.pop((run, task), None)

    def first(self) -> Key | None:
        """The most urgent task for which there may be a worker."""
        heads = [head for need in self._heaps if need not in self._closed and (head := self._head(need))]
        return None if not heads else _key(min(heads))

    def close(self, run: RunId, task: TaskName) -> None:
        """There is no worker for a task now."""
        self._closed.add(self._tasks[run, task][0])

    def reopen(self) -> None:
        """There may be a worker for any task."""
        self._closed.clear()

    def _head(self, need: Need) -> Rank | None:
        heap = self._heaps[need]
        while heap and self._tasks.get(_key(heap[0])) != (need, heap[0]):
            heappop(heap)
        return heap[0] if heap else None


def _key(rank: Rank) -> Key:
    return rank[2], rank[4]
