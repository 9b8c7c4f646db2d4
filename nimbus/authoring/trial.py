"""Runs a pipeline in one process, for its author's tests, with the real definition, templates and rules."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypedDict

from nimbus import checkpoint
from nimbus.authoring.pipelines import Pipeline
from nimbus.authoring.tasks import Task
from nimbus.definition import parse_definition
from nimbus.domain.attempts.slots import End
from nimbus.domain.ids import AttemptId, PipelineName, ReleaseDigest, RunId, TaskName, WorkerId
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import PipelineSpec, Retries, TaskSpec
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.lifecycle import (
    begin,
    close_attempt,
    committed_outputs,
    conclude_waiting,
    is_ready,
    open_attempt,
)
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import Outcome, TaskState
from nimbus.result import FILE, decode
from nimbus.task import CONTEXT_VARIABLE, TaskContext, context
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError, at_release
from nimbus.worker.driver.trial_session import own_session

TaskFunction = Callable[..., Any]
_RELEASE = ReleaseDigest("0" * 64)
_HERE = WorkerId("here")


class GivenVersion(TypedDict, total=False):
    """A version of a dataset, for `Pipeline.test`."""

    path: Path
    """Folder with its files."""
    partition: str
    """Interval or key; empty by default: the whole dataset."""
    item: Any
    """Of a read with `of`: the item of the child run."""
    value: Mapping[str, Any]
    """Of a read with `of`: the result of the task that published it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of `Pipeline.test`."""

    state: str
    """State of the run: succeeded or failed."""
    states: Mapping[str, str]
    """State of each task, by name: succeeded, failed, skipped, not_run."""
    folder: Path
    """Outputs, one folder for each task that began."""
    errors: Mapping[str, Exception] = field(default_factory=dict)
    """Exceptions of tasks, by name."""

    results: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Results of tasks, set with `ctx.result` or returned, by name."""
    checkpoints: Mapping[str, Any] = field(default_factory=dict)
    """Last checkpoints of tasks, set with `ctx.checkpoint`, by name."""

    def output(self, task: str) -> Path:
        """Output folder of a task."""
        return self.folder / task


def try_out(
    pipeline: Pipeline,
    parameters: Mapping[str, Any],
    replace: Mapping[str, TaskFunction],
    *,
    variables: Mapping[str, str],
    checkpoints: Mapping[str, Any],
    reads: Mapping[str, Sequence[GivenVersion]],
    logical_date: datetime | None,
    data_interval: tuple[datetime, datetime] | None,
    folder: Path | None,
    raises: bool,
) -> Trial:
    """See `Pipeline.test`."""
    tasks = _tasks(pipeline, replace)
    place = Path(tempfile.mkdtemp(prefix=f"{pipeline.name}-")) if folder is None else folder
    now = datetime.now(UTC)
    draft = Draft(
        id=RunId("trial"),
        pipeline=PipelineName(pipeline.name),
        release=_RELEASE,
        parameters=parameters,
        variables=variables,
        logical_date=logical_date or (data_interval[1] if data_interval else now),
        data_interval=DataInterval(*data_interval) if data_interval else None,
        cause=RunCause.MANUAL,
        asked_at=now,
    )
    templates = Templates()
    spec = parse_definition(pipeline.yaml().encode(), str(pipeline.file))
    _check_reads(spec, reads)
    run = begin(templates.render(new_run(_without_retries(spec), draft)), now)
    return _Trying(pipeline, tasks, templates, place, checkpoints, reads, raises=raises).tried(run)


def _check_reads(spec: PipelineSpec, given: Mapping[str, Sequence[GivenVersion]]) -> None:
    names = {read.name for read in spec.reads}
    if unknown := sorted(given.keys() - names):
        raise ValueError(
            f"the pipeline does not read {', '.join(unknown)}; it has {sorted(names)} in `reads`"
        )
    missing = [read.name for read in spec.reads if not read.optional and read.name not in given]
    if missing:
        raise ValueError(
            f"a test has no datasets, and these reads need some: {', '.join(missing)}; "
            'give the versions of each, as reads={name: [{"path": folder}]}'
        )


def _without_retries(spec: PipelineSpec) -> PipelineSpec:
    tasks = (dataclasses.replace(task, retries=Retries(limit=0), keeps_running=False) for task in spec.tasks)
    return dataclasses.replace(spec, tasks=tuple(tasks))


def _tasks(pipeline: Pipeline, replace: Mapping[str, TaskFunction]) -> dict[str, Task[..., Any]]:
    """The task to call for each name. Raises ValueError if `replace` lacks one."""
    tasks = {name: task for name, task in pipeline.tasks.items() if task.function is not None}
    waits = {name for name, task in pipeline.tasks.items() if task.kind in ("approval", "wait")}
    tasks |= {name: Task(name, "python", _pass, (), {}) for name in waits}
    tasks |= {name: Task(name, "python", function, (), {}) for name, function in replace.items()}
    missing = [name for name in pipeline.tasks if name not in tasks]
    if missing:
        raise ValueError(
            f"these tasks are programs or child runs, which a test does not start: {', '.join(missing)}; "
            "give a function for each, as replace={name: function}"
        )
    return tasks


def _pass(ctx: TaskContext, *_: str) -> None:
    """Function of a task that waits: it succeeds at once."""


class _Trying:
    def __init__(
        self,
        pipeline: Pipeline,
        tasks: Mapping[str, Task[..., Any]],
        templates: Templates,
        folder: Path,
        checkpoints: Mapping[str, Any],
        reads: Mapping[str, Sequence[GivenVersion]],
        *,
        raises: bool,
    ) -> None:
        self._pipeline, self._tasks, self._templates = pipeline, tasks, templates
        self._folder, self._raises, self._reads = folder, raises, reads
        self._errors: dict[str, Exception] = {}
        self._results: dict[TaskName, Mapping[str, Any]] = {}
        self._earlier, self._checkpoints = checkpoints, dict[str, Any]()

    def tried(self, run: Run) -> Trial:
        """Run all tasks, in the order in which they become ready."""
        while not run.state.is_final:
            name = next(task.spec.name for task in run.tasks.in_order() if is_ready(run, task))
            run = self._tried_task(run, name)
        return Trial(
            state=run.state.value,
            states={str(task.spec.name): task.state.value for task in run.tasks.in_order()},
            folder=self._folder,
            errors=self._errors,
            results={str(name): result for name, result in self._results.items()},
            checkpoints=self._checkpoints,
        )

    def _tried_task(self, run: Run, name: TaskName) -> Run:
        now, spec = datetime.now(UTC), run.tasks[name].spec
        try:
            if spec.reads:
                spec = self._templates.render_task(run, name, self._results)
        except TemplateError as exc:
            self._fails(name, exc)
            return conclude_waiting(run, name, TaskState.FAILED, now, str(exc))
        if not spec.is_wanted:
            return conclude_waiting(run, name, TaskState.SKIPPED, now)
        run = open_attempt(run, name, worker=_HERE, epoch=1, now=now)
        attempt = AttemptId(run.id, name, 1)
        outcome = Outcome.SUCCEEDED if self._succeeds(run, spec) else Outcome.FAILED
        end = End(
            attempt=str(attempt),
            outcome=outcome,
            written_by="runner",
            ended_at=now,
            output=str(name),
            result=self._results.get(name),
        )
        return close_attempt(run, attempt, end, max_infrastructure_failures=1, now=now)

    def _succeeds(self, run: Run, spec: TaskSpec) -> bool:
        (self._folder / spec.name).mkdir(parents=True, exist_ok=True)
        task = self._tasks[spec.name]
        with _in_task(self._document(run, spec), self._folder / ".nimbus" / spec.name) as left:
            try:
                root = str(self._pipeline.file.parent)
                conf = {name: at_release(text, root) for name, text in spec.spark_conf.items()}
                with own_session(conf if task.kind == "pyspark" else None):
                    task.run(context(), [at_release(text, root) for text in spec.args])
            except Exception as exc:  # noqa: BLE001 - the task's own; it is kept, or raised again
                self._fails(spec.name, exc)
                return False
            finally:
                if (kept := left / checkpoint.FILE).exists():
                    self._checkpoints[str(spec.name)] = json.loads(kept.read_bytes())
            if (result := left / FILE).exists():
                self._results[spec.name] = decode(result.read_bytes())
        return True

    def _fails(self, name: TaskName, exc: Exception) -> None:
        if self._raises:
            raise exc
        self._errors[str(name)] = exc

    def _document(self, run: Run, spec: TaskSpec) -> dict[str, Any]:
        """The context document that `nimbus.task.context` reads."""
        interval = run.data_interval
        outputs = committed_outputs(run, spec.needs)
        reads = {name: self._reads.get(name, ()) for name in spec.uses}
        folders = {
            f"{name}:{place}": str(version["path"])
            for name, versions in reads.items()
            for place, version in enumerate(versions)
            if "path" in version
        }
        return {
            "schema": 1,
            "pipeline": run.pipeline,
            "release": run.release,
            "cluster": "trial",
            "run_id": run.id,
            "run_number": time.time_ns() // 1_000_000 << 8,  # a later trial has a larger one
            "task": spec.name,
            "attempt": 1,
            "logical_date": run.logical_date.isoformat(),
            "data_interval_start": interval and interval.start.isoformat(),
            "data_interval_end": interval and interval.end.isoformat(),
            "tz": run.timezone,
            "parameters": dict(run.parameters),
            "variables": dict(run.variables),
            "inputs": {need: str(self._folder / output) for need, output in outputs.items()} | folders,
            "reads": {
                name: [_version(run, version) for version in versions] for name, versions in reads.items()
            },
            "output": str(self._folder / spec.name),
            "checkpoint": json.dumps(self._earlier.get(str(spec.name))),
            "release_root": str(self._pipeline.file.parent),
        }


def _version(run: Run, given: GivenVersion) -> dict[str, Any]:
    return {
        "partition": given.get("partition", ""),
        "run": run.id,
        "number": 1,
        "at": run.logical_date.isoformat(),
        "item": given.get("item"),
        "value": given.get("value"),
    }


@contextmanager
def _in_task(document: Mapping[str, Any], folder: Path) -> Iterator[Path]:
    """Make `nimbus.task.context` work as in an attempt. Yields the folder `work` of the task."""
    (folder / "work").mkdir(parents=True, exist_ok=True)
    place = folder / "context.json"
    place.write_text(json.dumps(document), encoding="utf-8")
    before = os.environ.get(CONTEXT_VARIABLE)
    os.environ[CONTEXT_VARIABLE] = str(place)
    context.cache_clear()
    try:
        yield folder / "work"
    finally:
        context.cache_clear()
        if before is None:
            del os.environ[CONTEXT_VARIABLE]
        else:
            os.environ[CONTEXT_VARIABLE] = before
