"""Workers that may get more attempts, best first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from nimbus.domain.admission import Rank
from nimbus.domain.ids import WorkerId
from nimbus.domain.workers import WorkerInfo


class FreeWorkers:
    """A list in the order of ranks. A change costs O(log n) comparisons, the first worker O(1)."""

    def __init__(self) -> None:
        self._ranks: list[Rank] = []
        self._found: dict[WorkerId, tuple[Rank, WorkerInfo]] = {}

    def __iter__(self) -> Iterator[WorkerInfo]:
        return (self._found[worker][1] for *_, worker in self._ranks)

    def put(self, worker: WorkerInfo, rank: Rank | None) -> None:
        """Set a worker's rank; None: it gets no more attempts."""
        self.discard(worker.id)
        if rank is not None:
            insort(self._ranks, rank)
            self._found[worker.id] = rank, worker

    def discard(self, worker: WorkerId) -> None:
        """Remove a worker, if it is in the list."""
        found = self._found.pop(worker, None)
        if found is not None:
            del self._ranks[bisect_left(self._ranks, found[0])]
