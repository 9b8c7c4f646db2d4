"""A pipeline that is written in Python: its definition, its entry point, its test.

What only the author's machine needs is imported where it is used: on a worker each attempt imports this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from nimbus.authoring.description import Description
from nimbus.authoring.options import PipelineOptions
from nimbus.authoring.tasks import Task
from nimbus.task import CONTEXT_VARIABLE, context

if TYPE_CHECKING:
    from nimbus.authoring.trial import TaskFunction, Trial


class Pipeline(Description):
    """A pipeline. Made by `pipeline`."""

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
