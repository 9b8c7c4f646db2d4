"""Which tasks of a run still wait for others. Counted, so that an END costs its dependents and no more."""

from __future__ import annotations

from collections.abc import Iterator

from nimbus.domain.ids import TaskName
from nimbus.domain.run import Run


class Needs:
    """How many needs of each task are not final. What is final stays so, and the counts only fall."""

    def __init__(self, run: Run) -> None:
        self._dependents = run.tasks.dependents
        self._unmet: dict[TaskName, int] = {}
        unknown = set()
        for task in run.tasks.in_order():
            name = task.spec.name
            for need in set(task.spec.needs):
                found = run.tasks.get(need)
                if found is None:
                    unknown.add(need)
                if found is None or not found.state.is_final:
                    self._unmet[name] = self._unmet.get(name, 0) + 1
        self.unknown = tuple(sorted(unknown))
        """Tasks that others need and the run does not have."""

    def met(self, task: TaskName) -> bool:
        """Whether all that a task needs is final."""
        return task not in self._unmet

    def ended(self, task: TaskName) -> Iterator[TaskName]:
        """Take in that a task is final. Yields the tasks that now wait for no other."""
        for dependent in self._dependents(task):
            self._unmet[dependent] -= 1
            if not self._unmet[dependent]:
                del self._unmet[dependent]
                yield dependent
