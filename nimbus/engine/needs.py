"""Which tasks of a run still wait for others. It counts, so that an END costs only its dependents."""

from __future__ import annotations

from collections.abc import Iterator

from nimbus.domain.ids import TaskName
from nimbus.domain.run import Run


class Needs:
    """Number of unmet needs of each task. A final task stays final, so the counts only fall."""

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
        """True when all needs of a task are final."""
        return task not in self._unmet

    def ended(self, task: TaskName) -> Iterator[TaskName]:
        """Note that a task is final. Yield the tasks whose needs are all final now."""
        for dependent in self._dependents(task):
            self._unmet[dependent] -= 1
            if not self._unmet[dependent]:
                del self._unmet[dependent]
                yield dependent
