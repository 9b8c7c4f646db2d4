"""A pipeline in Python as the data of its `pipeline.yaml`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from nimbus.authoring.tasks import Task

MADE_BY = "# Made by python "
"""Prefix of the first line of a definition that a Python file wrote."""


class Description:
    """A pipeline with its tasks. `Pipeline` adds the operations."""

    def __init__(
        self, name: str, file: Path, tasks: Sequence[Task[..., Any]], options: Mapping[str, Any]
    ) -> None:
        self.name, self.file, self.options = name, file.resolve(), dict(options)
        self.tasks = {task.name: task for task in tasks}
        if len(self.tasks) < len(tasks):
            names = [task.name for task in tasks]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"pipeline {name} has two tasks named {twice!r}: give one of them name=...")
        for task in self.tasks.values():
            for need in task.needs:
                found = self.tasks.get(_name(need))
                if found is None or (found is not need and not isinstance(need, str)):
                    raise ValueError(f"task {task.name} needs {_name(need)}, which is not in tasks=[...]")

    def definition(self) -> dict[str, Any]:
        """The definition, as the data of `pipeline.yaml`."""
        tasks = {name: self._task(task) for name, task in self.tasks.items()}
        return {"schema": 1, "name": self.name, **_plain(self.options), "tasks": tasks}

    def yaml(self) -> str:
        """The text of `pipeline.yaml`."""
        import yaml

        head = f"{MADE_BY}{self.file.name}: change that file, not this one.\n"
        body = yaml.safe_dump(self.definition(), sort_keys=False, allow_unicode=True, width=100)
        return head + body

    def _task(self, task: Task[..., Any]) -> dict[str, Any]:
        said: dict[str, Any] = {"type": task.kind}
        if task.function is not None:
            said["script"] = self.file.name
        if isinstance(task.needs, Mapping):
            said["needs"] = {_name(need): how for need, how in task.needs.items()}
        elif task.needs:
            said["needs"] = [_name(need) for need in task.needs]
        return {**said, **_plain(task.options)}


def _name(need: Task[..., Any] | str) -> str:
    return need if isinstance(need, str) else need.name


def _plain(value: Any) -> Any:
    """A value in the form of YAML that the definition reads."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
