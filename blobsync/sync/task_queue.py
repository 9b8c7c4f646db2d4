"""When tasks are due: a priority queue with back-offs, and the times to test a disk that has failed.

Pure: the time is an argument; one thread owns it. When a task is due, it is moved from one heap to another,
so choosing a few of a hundred thousand tasks is cheap.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from blobsync.retry import RetryPolicy
from blobsync.sync.readiness import Failure, ReleaseState

Key = TypeVar("Key")
_Entry = tuple[float, int, int, Key]
"""Due time and 0, or order and failures; then stamp and key. Stamps differ, so keys are never compared."""

URGENT = -1
"""The order of tasks that a call of `ensure` waits for: they run before all others."""


@dataclass(slots=True)
class TaskTimes:
    """When a task is due, and how its tries ended.

    Attributes:
        order: The lowest runs first.
        running: True from `take` until `ended`.
        first_failed_s: Time of the first failure in a row with the same state.
        stamp: Number of its valid entry in a heap; older entries are skipped.
        again_s: Set if it was moved while it ran: the time when it is due again.
    """

    order: int
    due_s: float
    running: bool = False
    failures: int = 0
    first_failed_s: float = 0.0
    failure: Failure | None = None
    stamp: int = 0
    again_s: float | None = None


class TaskQueue(Generic[Key]):
    """Tasks by their key.

    Args:
        urgent: Number of `URGENT` tasks that `take` may return beyond `free`.
    """

    def __init__(self, urgent: int = 0) -> None:
        self._urgent = urgent
        self._tasks: dict[Key, TaskTimes] = {}
        self._later: list[_Entry[Key]] = []
        self._due: list[_Entry[Key]] = []
        self._stamp = 0

    def __contains__(self, key: Key) -> bool:
        return key in self._tasks

    def __getitem__(self, key: Key) -> TaskTimes:
        return self._tasks[key]

    def items(self) -> Iterator[tuple[Key, TaskTimes]]:
        """All tasks."""
        yield from self._tasks.items()

    def add(self, key: Key, order: int, due_s: float) -> TaskTimes:
        """Add a task, or change the order of the existing one."""
        task = self._tasks.get(key)
        if task is None:
            task = self._tasks[key] = TaskTimes(order, due_s)
            self.move(key, due_s)
        elif task.order != order:
            task.order = order
            if not task.running:
                self.move(key, task.due_s)
        return task

    def move(self, key: Key, due_s: float) -> None:
        """Make a task due at this time. If it is running, it is due once more after it has ended."""
        task = self._tasks[key]
        if task.running:
            task.again_s = due_s
            return
        self._stamp += 1
        task.due_s, task.stamp = due_s, self._stamp
        heapq.heappush(self._later, (due_s, 0, self._stamp, key))

    def retry(self, key: Key, now_s: float) -> None:
        """End the back-off of a task, if it has one."""
        task = self._tasks[key]
        if task.failures:
            task.failures = 0
            self.move(key, now_s)

    def ended(self, key: Key, due_s: float) -> None:
        """Note that a task has ended. It is due at this time, or earlier if it was moved while it ran."""
        task = self._tasks[key]
        task.running = False
        self.move(key, due_s if task.again_s is None else min(due_s, task.again_s))
        task.again_s = None

    def drop(self, key: Key) -> None:
        """Remove a task, if it exists."""
        self._tasks.pop(key, None)

    def take(self, now_s: float, free: int) -> list[Key]:
        """Tasks to run now, lowest order first, then fewest failures. They count as running.

        At most `free`, but urgent ones may exceed it. It is below 0 while running urgent tasks exceed it.
        """
        while self._later and self._later[0][0] <= now_s:
            _, _, stamp, key = heapq.heappop(self._later)
            task = self._tasks.get(key)
            if task is not None and task.stamp == stamp and not task.running:
                heapq.heappush(self._due, (task.order, task.failures, stamp, key))
        taken: list[Key] = []
        while self._may_take(free - len(taken)):
            key = heapq.heappop(self._due)[-1]
            self._tasks[key].running = True
            taken.append(key)
        return taken

    def next_due_s(self, free: int = 1) -> float | None:
        """When `take` returns a task; None: not before a task ends or is moved."""
        if self._may_take(free):
            return float("-inf")
        may_take_later = free + self._urgent > 0 and self._clean(self._later)
        return self._later[0][0] if may_take_later else None

    def _may_take(self, free: int) -> bool:
        if not self._clean(self._due):
            return False
        return free > 0 or (self._due[0][0] == URGENT and free + self._urgent > 0)

    def _clean(self, heap: list[_Entry[Key]]) -> bool:
        """Drop invalid entries from the top. True if any entry is left."""
        while heap:
            stamp, key = heap[0][-2:]
            task = self._tasks.get(key)
            if task is not None and task.stamp == stamp and not task.running:
                return True
            heapq.heappop(heap)
        return False


class BackOffs:
    """The back-offs of all queues. When the store or the disk works again, those that it caused end."""

    def __init__(self, retry: RetryPolicy, rng: Callable[[], float], *queues: TaskQueue[Any]) -> None:
        self._retry, self._rng, self._queues = retry, rng, queues
        self._last_answer_s = self._last_outage_s = float("-inf")
        self._disk_refused = False

    @property
    def in_outage(self) -> bool:
        """True when the object store has failed since it last answered."""
        return self._last_outage_s > self._last_answer_s

    @property
    def waits_for_disk(self) -> bool:
        """True when a task that the disk refused waits for its next try."""
        return any(task.failure is not None and task.failure.of_disk for _, _, task in self._failing())

    def failed(self, queue: TaskQueue[Any], key: Any, failure: Failure, now_s: float) -> None:
        """Note that a running task failed. It is due again after its back-off."""
        task = queue[key]
        if task.failure is None or task.failure.state is not failure.state:
            task.first_failed_s = now_s
        if failure.state is ReleaseState.UNAVAILABLE:
            self._last_outage_s = max(self._last_outage_s, task.first_failed_s)
        self._disk_refused = self._disk_refused or failure.of_disk
        task.failures += 1
        task.failure = failure
        queue.ended(key, now_s + self._retry.wait_s(task.failures, self._rng))

    def retry_now(self, now_s: float) -> None:
        """Make everything that waits for a back-off due."""
        for queue, key, _ in self._failing():
            queue.retry(key, now_s)

    def store_answered(self, now_s: float) -> None:
        """Note that the object store answered. Tasks whose failures began since its last answer are due now.

        A task that also failed before that answer keeps its back-off: the outage was not the only cause.
        """
        if self.in_outage:
            for queue, key, task in self._failing():
                outage = task.failure is not None and task.failure.state is ReleaseState.UNAVAILABLE
                if outage and task.first_failed_s > self._last_answer_s and task.due_s > now_s:
                    queue.move(key, now_s)
        self._last_answer_s = now_s

    def disk_answered(self, now_s: float) -> None:
        """Note that a write succeeded. Tasks that failed because of the disk are due now."""
        if self._disk_refused:
            self._disk_refused = False
            for queue, key, task in self._failing():
                if task.failure is not None and task.failure.of_disk and task.due_s > now_s:
                    queue.move(key, now_s)

    def _failing(self) -> Iterator[tuple[TaskQueue[Any], Any, TaskTimes]]:
        for queue in self._queues:
            for key, task in list(queue.items()):
                if task.failures:
                    yield queue, key, task


class DiskWatch:
    """When to test whether a failed disk works again: less and less often."""

    def __init__(self, retry: RetryPolicy, rng: Callable[[], float] = random.random) -> None:
        self._retry, self._rng = retry, rng
        self._questions = 0
        self.due_s: float | None = None
        """Time of the next test; None while the disk works."""

    def is_due(self, ok: bool, now_s: float) -> bool:
        """True if the disk must be tested now. Then the next test is scheduled."""
        if ok:
            self._questions, self.due_s = 0, None
            return False
        due = self.due_s is not None and self.due_s <= now_s
        if due or self.due_s is None:
            self._questions += 1
            self.due_s = now_s + self._retry.wait_s(self._questions, self._rng)
        return due
