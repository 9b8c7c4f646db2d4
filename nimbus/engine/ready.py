"""Tasks that could start now, most urgent first."""

from __future__ import annotations

from datetime import datetime
from heapq import heappop, heappush

from nimbus.domain.ids import RunId, TaskName
from nimbus.domain.pipeline import Priority
from nimbus.domain.run import Run, TaskRun

Rank = tuple[Priority, datetime, RunId, Priority, TaskName]
"""By the run's priority, its age, the task's priority; ids make it a total order."""


class ReadyTasks:
    """A queue by rank. Adding and taking cost O(log n)."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[RunId, TaskName], Rank] = {}
        self._heap: list[Rank] = []
        """Also holds ranks of tasks that were discarded: `_ranks` says which count."""

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, task: tuple[RunId, TaskName]) -> bool:
        return task in self._ranks

    def add(self, run: Run, task: TaskRun) -> None:
        """Queue a task."""
        rank = (run.priority, run.created_at, run.id, task.spec.priority, task.spec.name)
        if self._ranks.get((run.id, task.spec.name)) != rank:
            self._ranks[run.id, task.spec.name] = rank
            heappush(self._heap, rank)
            if len(self._heap) > 2 * len(self._ranks) + 64:
                self._heap = sorted(self._ranks.values())

    def discard(self, run: RunId, task: TaskName) -> None:
        """Take a task out, if it is in."""
        self._ranks.pop((run, task), None)

    def first(self) -> tuple[RunId, TaskName] | None:
        """The most urgent task."""
        while self._heap:
            rank = self._heap[0]
            key = rank[2], rank[4]
            if self._ranks.get(key) == rank:
                return key
            heappop(self._heap)
        return None
