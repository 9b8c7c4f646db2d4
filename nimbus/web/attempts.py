"""Why each attempt of a task was opened, derived from the attempts before it. Pure."""

from __future__ import annotations

from nimbus.domain.task_run import TaskRun


def reasons(task: TaskRun) -> dict[int, str]:
    """Reasons by the number of the attempt."""
    found: dict[int, str] = {}
    used = 0
    for before, attempt in zip((None, *task.attempts), task.attempts, strict=False):
        if before is None:
            found[attempt.number] = "the first" if attempt.number == 1 else ""
            continue
        ended = f"attempt {before.number} ended as {before.ending.replace('_', ' ')}"
        if before.outcome is not None and before.outcome.is_infrastructure:
            found[attempt.number] = f"{ended}: uses up no retry"
        else:
            used += 1
            found[attempt.number] = f"{ended}: retry {used} of {task.spec.retries.limit}"
    return found
