"""Numbers of live runs in each state, and of their tasks."""

from __future__ import annotations

from collections import Counter

from nimbus.domain.run import Run, RunState
from nimbus.domain.task_run import TaskState


class LiveCounts:
    """Counts of runs that are not final. The cost of a change does not depend on how much is live."""

    def __init__(self) -> None:
        self.runs: Counter[RunState] = Counter()
        self.tasks: Counter[TaskState] = Counter()

    def moved(self, before: Run | None, after: Run | None) -> None:
        """Count a live run that is new (`before` is None), changed, or no longer live (`after` is None)."""
        if before is not None:
            self.runs[before.state] -= 1
        if after is not None:
            self.runs[after.state] += 1
        for state, count in () if before is None else before.tasks.counts.items():
            self.tasks[state] -= count
        for state, count in () if after is None else after.tasks.counts.items():
            self.tasks[state] += count
