"""Runs a pipeline in one process, for its author's tests: the real definition, templates and rules."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nimbus.definition import parse_definition
from nimbus.domain.drafts import Draft, new_run
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.intervals import DataInterval
from nimbus.domain.lifecycle import begin, close_attempt, committed_outputs, is_ready, open_attempt
from nimbus.domain.pipeline import PipelineSpec, RetryPolicy
from nimbus.domain.run import Outcome, Run, RunCause
from nimbus.domain.slots import End
from nimbus.task import CONTEXT_VARIABLE, context
from nimbus.templates.helper import TemplateHelper

if TYPE_CHECKING:
    from nimbus.authoring.pipelines import Pipeline

TaskFunction = Callable[..., Any]
_RELEASE = ReleaseDigest("0" * 64)
_HERE = WorkerId("here")
_LAYOUT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a pipeline ended that was tried out."""

    state: str
    """Of the run: succeeded or failed."""
    states: Mapping[str, str]
    """Of each task, by name: succeeded, failed, skipped, not_run."""
    folder: Path
    """Outputs, one folder for each task that began."""
    errors: Mapping[str, Exception] = field(default_factory=dict)
    """What tasks raised, by name."""

    def output(self, task: str) -> Path:
        """Output folder of a task."""
        return self.folder / task


def try_out(
    pipeline: Pipeline,
    parameters: Mapping[str, Any],
    replace: Mapping[str, TaskFunction],
    *,
    logical_date: datetime | None,
    data_interval: tuple[datetime, datetime] | None,
    folder: Path | None,
    raises: bool,
) -> Trial:
    """See `Pipeline.test`."""
    functions = {**_functions(pipeline), **replace}
    missing = [name for name in pipeline.tasks if name not in functions]
    if missing:
        raise ValueError(
            f"these tasks are programs, which a test does not start: {', '.join(missing)}; "
            "give a function for each, as replace={name: function}"
        )
    place = Path(tempfile.mkdtemp(prefix=f"{pipeline.name}-")) if folder is None else folder
    now = datetime.now(UTC)
    draft = Draft(
        id=RunId("trial"),
        pipeline=PipelineName(pipeline.name),
        release=_RELEASE,
        parameters=parameters,
        logical_date=logical_date or now,
        data_interval=None if data_interval is None else _interval(*data_interval),
        cause=RunCause.MANUAL,
        layout=_LAYOUT,
        asked_at=now,
    )
    with TemplateHelper() as templates:
        spec = parse_definition(pipeline.yaml().encode(), str(pipeline.file), templates)
        run = begin(templates.render(new_run(_without_retries(spec), draft)), now)
    return _Trying(pipeline, functions, place, raises=raises).tried(run)


def _interval(start: datetime, end: datetime) -> DataInterval:
    return DataInterval(start=start, end=end)


def _without_retries(spec: PipelineSpec) -> PipelineSpec:
    tasks = (dataclasses.replace(task, retries=RetryPolicy(limit=0)) for task in spec.tasks)
    return dataclasses.replace(spec, tasks=tuple(tasks))


def _functions(pipeline: Pipeline) -> dict[str, TaskFunction]:
    return {name: task.function for name, task in pipeline.tasks.items() if task.function is not None}


class _Trying:
    def __init__(
        self, pipeline: Pipeline, functions: Mapping[str, TaskFunction], folder: Path, *, raises: bool
    ) -> None:
        self._pipeline, self._functions, self._folder, self._raises = pipeline, functions, folder, raises
        self._errors: dict[str, Exception] = {}

    def tried(self, run: Run) -> Trial:
        """Run all tasks, in the order in which they become ready."""
        while not run.state.is_final:
            name = next(task.spec.name for task in run.tasks.in_order() if is_ready(run, task))
            run = self._attempted(run, name)
        return Trial(
            state=run.state.value,
            states={str(task.spec.name): task.state.value for task in run.tasks.in_order()},
            folder=self._folder,
            errors=self._errors,
        )

    def _attempted(self, run: Run, name: TaskName) -> Run:
        now = datetime.now(UTC)
        run = open_attempt(run, name, worker=_HERE, epoch=1, now=now)
        attempt = AttemptId(run.id, name, 1)
        outcome = Outcome.SUCCEEDED if self._succeeds(run, name) else Outcome.FAILED
        end = End(attempt=str(attempt), outcome=outcome, written_by="runner", ended_at=now, output=str(name))
        return close_attempt(run, attempt, end, max_mishaps=1, now=now)

    def _succeeds(self, run: Run, name: TaskName) -> bool:
        spec = run.tasks[name].spec
        (self._folder / name).mkdir(parents=True, exist_ok=True)
        with _in_task(self._document(run, name), self._folder):
            try:
                self._functions[name](context(), *spec.args)
            except Exception as exc:
                if self._raises:
                    raise
                self._errors[str(name)] = exc
        return str(name) not in self._errors

    def _document(self, run: Run, name: TaskName) -> dict[str, Any]:
        """What `nimbus.task.context` reads."""
        interval = run.data_interval
        outputs = committed_outputs(run, run.tasks[name].spec.needs)
        return {
            "schema": 1,
            "pipeline": run.pipeline,
            "release": run.release,
            "run_id": run.id,
            "task": name,
            "attempt": 1,
            "logical_date": run.logical_date.isoformat(),
            "data_interval_start": interval and interval.start.isoformat(),
            "data_interval_end": interval and interval.end.isoformat(),
            "tz": run.timezone,
            "parameters": dict(run.parameters),
            "inputs": {need: str(self._folder / output) for need, output in outputs.items()},
            "output": str(self._folder / name),
            "release_root": str(self._pipeline.file.parent),
        }


@contextmanager
def _in_task(document: Mapping[str, Any], folder: Path) -> Iterator[None]:
    """Have `nimbus.task.context` answer as in an attempt."""
    before = os.environ.get(CONTEXT_VARIABLE)
    place = folder / f"{document['task']}.context.json"
    place.write_text(json.dumps(document), encoding="utf-8")
    os.environ[CONTEXT_VARIABLE] = str(place)
    context.cache_clear()
    try:
        yield
    finally:
        context.cache_clear()
        place.unlink()
        if before is None:
            del os.environ[CONTEXT_VARIABLE]
        else:
            os.environ[CONTEXT_VARIABLE] = before
