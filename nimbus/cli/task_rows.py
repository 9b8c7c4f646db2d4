"""A run's tasks as rows of a table. Pure."""

from __future__ import annotations

from typing import Any


def task_rows(run: dict[str, Any]) -> list[tuple[Any, ...]]:
    """One row for each task: name, state, attempts, and why or how far."""
    return [
        (task["name"], task["state"], len(task["attempts"]) or "", task["why"] or progress(task))
        for task in run["tasks"]
    ]


def progress(task: dict[str, Any]) -> str:
    """How far a running task is, as its driver says."""
    told = task["attempts"][-1]["progress"] if task["attempts"] else None
    return ", ".join(f"{key} {value}" for key, value in told.items()) if told else ""
