"""A pipeline written in Python: its definition, its entry point, its test.

Modules that only the author needs are imported late, because each attempt on a worker imports this one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nimbus.authoring.options import PipelineOptions
from nimbus.authoring.tasks import Task
from nimbus.task import CONTEXT_VARIABLE, context

if TYPE_CHECKING:
    from typing import Unpack

    from nimbus.authoring.trial import GivenVersion, TaskFunction, Trial

MADE_BY = "# Made by python "
"""Prefix of the first line of a definition that a Python file wrote."""


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
        for task in self.tasks.values():
            for need in task.needs:
                needed = self.tasks.get(_name(need))
                if needed is None or (needed is not need and not isinstance(need, str)):
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

    def main(self) -> None:
        """The entry point: run the attempt's task; outside an attempt, write `pipeline.yaml` beside the file.

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
        reads: Mapping[str, Sequence[GivenVersion]] | None = None,
        logical_date: datetime | None = None,
        data_interval: tuple[datetime, datetime] | None = None,
        folder: Path | None = None,
        raises: bool = True,
    ) -> Trial:
        """Run the pipeline in this process, task by task, each once: no cluster, no retries.

        Each task has a Spark session of its own. A `pyspark` task's session has its `spark.conf`; where your
        test has a session already, only the properties that a session can set, such as `spark.sql.*`.

        Args:
            parameters: Parameters of the run.
            replace: Functions in place of tasks, by task name. A task that is a program, or starts child
                runs, needs one; a task that waits succeeds without one.
            variables: Variables of the cluster, `vars` in templates.
            checkpoints: Checkpoints of earlier attempts, by task name.
            reads: The versions of datasets, for each of `reads` that is not optional.
            logical_date: Aware; None: the end of the interval, else now.
            data_interval: Aware start and end, for templates that name it.
            folder: Folder for outputs, which stay there; None: a new temporary one.
            raises: True: the first exception of a task ends the test. False: the task fails, as in a run.

        Returns:
            The end state and the output folder of each task.

        Raises:
            InvalidDefinitionError: the definition is wrong; it lists each fault.
            InvalidParametersError: `parameters` do not fit it.
            ValueError: a task is a program, and `replace` has no function for it; or `reads` lacks one.
        """
        from nimbus.authoring.trial import try_out

        return try_out(
            self,
            parameters or {},
            replace or {},
            variables=variables or {},
            checkpoints=checkpoints or {},
            reads=reads or {},
            logical_date=logical_date,
            data_interval=data_interval,
            folder=folder,
            raises=raises,
        )


def pipeline(
    name: str, *, file: str | Path, tasks: Sequence[Task[..., Any]], **options: Unpack[PipelineOptions]
) -> Pipeline:
    """Describe a pipeline.

    Args:
        name: Name of the pipeline.
        file: `__file__`. Its folder is published; a worker runs the file for each task with a function.
        tasks: All tasks.
        options: Keys of `pipeline.yaml`.

    Raises:
        ValueError: two tasks have the same name, or a task needs one that is not in `tasks`.
    """
    return Pipeline(name, Path(file), tasks, options)


def _name(need: Task[..., Any] | str) -> str:
    return need if isinstance(need, str) else need.name


def _plain(value: Any) -> Any:
    """A value in the form of YAML that the definition reads."""
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
