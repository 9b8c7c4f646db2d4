"""A pipeline that is written in Python: its definition, its entry point, its test.

What only the author's machine needs is imported where it is used: on a worker each attempt imports this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from nimbus.authoring.options import PipelineOptions
from nimbus.authoring.tasks import Task
from nimbus.task import CONTEXT_VARIABLE, context

if TYPE_CHECKING:
    from nimbus.authoring.trial import TaskFunction, Trial

MADE_BY = "# Made by python "
"""How the first line of a definition begins that a file in Python has written."""


class Pipeline:
    """A pipeline. Made by `pipeline`."""

    def __init__(
        self, name: str, file: Path, tasks: Sequence[Task[..., Any]], options: Mapping[str, Any]
    ) -> None:
        self.name, self.file, self.options = name, file.resolve(), dict(options)
        self.tasks = {task.name: task for task in tasks}
        if len(self.tasks) < len(tasks):
            names = [task.name for task in tasks]
            twice = next(name for name in names if names.count(name) > 1)
            raise ValueError(f"pipeline {name} has two tasks named {twice!r}: give one of them name=...")
        known = list(self.tasks.values())
        for task in known:
            for need in task.needs:
                if need not in known:
                    raise ValueError(f"task {task.name} needs {need.name}, which is not in tasks=[...]")

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

    def main(self) -> None:
        """Be the program: run a task inside an attempt; elsewhere write `pipeline.yaml` beside the file.

        With `--check` nothing is written; the exit code is 1 if the file is not up to date.
        """
        if CONTEXT_VARIABLE in os.environ:
            ctx = context()
            self.tasks[ctx.task].run(ctx, sys.argv[1:])
            return
        from nimbus.authoring.building import build

        sys.exit(build(self, sys.argv[1:]))

    def test(
        self,
        parameters: Mapping[str, Any] | None = None,
        *,
        replace: Mapping[str, TaskFunction] | None = None,
        variables: Mapping[str, str] | None = None,
        checkpoints: Mapping[str, Any] | None = None,
        logical_date: datetime | None = None,
        data_interval: tuple[datetime, datetime] | None = None,
        folder: Path | None = None,
        raises: bool = True,
    ) -> Trial:
        """Run the pipeline in this process, task by task, each once: no cluster, no retries.

        Args:
            parameters: Of the run.
            replace: Functions in place of tasks, by task name. A task that is a program, or starts child
                runs, needs one; one that waits succeeds without.
            variables: Of the cluster, as `vars` in templates.
            checkpoints: As if an earlier attempt had given them with `ctx.checkpoint`, by task name.
            logical_date: Aware; None: now.
            data_interval: Aware start and end, for templates that name it.
            folder: For outputs, which stay there; None: a new temporary one.
            raises: Whether the first exception of a task ends the test. Else its task fails as in a run.

        Returns:
            How each task ended, and where its output is.

        Raises:
            InvalidDefinitionError: the definition is wrong, with each fault.
            InvalidParametersError: `parameters` do not fit it.
            ValueError: a task is a program, and `replace` has nothing for it.
        """
        from nimbus.authoring.trial import try_out

        return try_out(
            self,
            parameters or {},
            replace or {},
            variables=variables or {},
            checkpoints=checkpoints or {},
            logical_date=logical_date,
            data_interval=data_interval,
            folder=folder,
            raises=raises,
        )

    def _task(self, task: Task[..., Any]) -> dict[str, Any]:
        said: dict[str, Any] = {"type": task.kind}
        if task.function is not None:
            said["script"] = self.file.name
        if isinstance(task.needs, Mapping):
            said["needs"] = {need.name: how for need, how in task.needs.items()}
        elif task.needs:
            said["needs"] = [need.name for need in task.needs]
        return {**said, **_plain(task.options)}


def pipeline(
    name: str, *, file: str | Path, tasks: Sequence[Task[..., Any]], **options: Unpack[PipelineOptions]
) -> Pipeline:
    """Describe a pipeline.

    Args:
        name: Of the pipeline.
        file: `__file__`. The file's folder is what is published; a worker runs it for each function's task.
        tasks: All of them.
        options: Keys of `pipeline.yaml`.

    Raises:
        ValueError: two tasks have one name, or one needs a task that is not here.
    """
    return Pipeline(name, Path(file), tasks, options)


def _plain(value: Any) -> Any:
    """As YAML writes it, and the definition reads it."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
