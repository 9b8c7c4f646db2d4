"""A run's tasks as rows of a table. Pure."""

from __future__ import annotations

from typing import Any


def task_rows(run: dict[str, Any]) -> list[tuple[Any, ...]]:
    """One row for each task: name, state, attempts, and why or how far."""
    return [
        (task["name"], task["state"], _tried(task) or "", task["why"] or progress(task))
        for task in run["tasks"]
    ]


_NOT_SHOWN = ("at", "number")
"""When it was said, and how often: for those who follow a driver."""
_AT_REST = ("QUEUED", "COMPLETED")


def _tried(task: dict[str, Any]) -> int:
    """How many attempts there were; of many, the answer lists only the last."""
    return int(task["attempts"][-1]["number"]) if task["attempts"] else 0


def progress(task: dict[str, Any]) -> str:
    """How far a running task is, as its driver says."""
    told = task["attempts"][-1]["progress"] if task["attempts"] else None
    return ", ".join(_words(key, value) for key, value in (told or {}).items() if key not in _NOT_SHOWN)


def _words(key: str, value: Any) -> str:
    """Of flows of a declarative pipeline: those under way alone."""
    if not isinstance(value, dict):
        return f"{key} {value}"
    under_way = [f"{name} {state}" for name, state in value.items() if state not in _AT_REST]
    return f"{key} {'; '.join(under_way) or '-'}"
