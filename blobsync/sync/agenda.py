"""What is due when, and in which order. Pure; one thread owns it.

Each entry is looked at when its time has come and not before, so that choosing a few of a hundred thousand
costs little.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from blobsync.sync.readiness import Failure

Key = TypeVar("Key")
_Entry = tuple[float, int, int, Key]
"""What orders it first, and second; its stamp; its key, which is never compared."""


@dataclass(slots=True)
class Task:
    """When something is to be done, and how it went so far.

    Attributes:
        order: What has the lower number goes first.
        due_s: Not before.
        running: It was taken, and its result is not there.
        failures: In a row.
        first_failed_s: Since when it has failed in this way.
        failure: The last one.
        stamp: Tells the valid entries of the heaps from older ones.
        again_s: Asked for while it was running: whatever comes of that, it is due again then.
    """

    order: int
    due_s: float
    running: bool = False
    failures: int = 0
    first_failed_s: float = 0.0
    failure: Failure | None = None
    stamp: int = 0
    again_s: float | None = None


class Agenda(Generic[Key]):
    """Tasks by their key."""

    def __init__(self) -> None:
        self._tasks: dict[Key, Task] = {}
        self._later: list[_Entry[Key]] = []
        self._due: list[_Entry[Key]] = []
        self._stamp = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._tasks

    def get(self, key: Key) -> Task | None:
        """The task; None: there is none."""
        return self._tasks.get(key)

    def items(self) -> Iterator[tuple[Key, Task]]:
        """All tasks."""
        yield from self._tasks.items()

    def add(self, key: Key, order: int, due_s: float) -> Task:
        """A new task, or the one that is there, in its new order."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = Task(order, due_s)
            self.move(key, due_s)
        elif task.order != order:
            task.order = order
            self.move(key, task.due_s)
        return task

    def move(self, key: Key, due_s: float) -> None:
        """Let it be due then; if it is running, once more after that."""
        task = self._tasks[key]
        if task.running:
            task.again_s = due_s
            return
        self._stamp += 1
        task.due_s, task.stamp = due_s, self._stamp
        heapq.heappush(self._later, (due_s, 0, self._stamp, key))

    def ended(self, key: Key, due_s: float) -> None:
        """It was taken, and is due again then, unless somebody asked for it meanwhile."""
        task = self._tasks[key]
        task.running = False
        self.move(key, due_s if task.again_s is None else min(due_s, task.again_s))
        task.again_s = None

    def drop(self, key: Key) -> None:
        """Forget it, if it is there."""
        self._tasks.pop(key, None)

    def take(self, now_s: float, free: int) -> list[Key]:
        """What to do now, at most `free`; it counts as running. In order, then what failed least."""
        while self._later and self._later[0][0] <= now_s:
            _, _, stamp, key = heapq.heappop(self._later)
            task = self._tasks.get(key)
            if task is not None and task.stamp == stamp and not task.running:
                heapq.heappush(self._due, (task.order, task.failures, stamp, key))
        taken: list[Key] = []
        while len(taken) < free and self._clean(self._due):
            key = heapq.heappop(self._due)[-1]
            self._tasks[key].running = True
            taken.append(key)
        return taken

    def next_due_s(self) -> float | None:
        """When `take` has something, as far as time alone decides; None: never."""
        if self._clean(self._due):
            return float("-inf")
        return self._later[0][0] if self._clean(self._later) else None

    def _clean(self, heap: list[_Entry[Key]]) -> bool:
        """Drop what is not valid any more from the top. Whether anything is left."""
        while heap:
            stamp, key = heap[0][-2:]
            task = self._tasks.get(key)
            if task is not None and task.stamp == stamp and not task.running:
                return True
            heapq.heappop(heap)
        return False
