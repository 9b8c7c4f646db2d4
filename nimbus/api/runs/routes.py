"""Routes that read runs, their results and what they read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query

from nimbus.api.explain.facts import cluster_facts
from nimbus.api.models import Model
from nimbus.api.paging import CursorText, Key, Where, decoded, encoded, unknown_cursor
from nimbus.api.requests import RunIdText
from nimbus.api.routes.datasets import VersionModel, version_model
from nimbus.api.runs.lookup import (
    MAX_RUNS,
    FoundRun,
    find_run,
    find_run_or_request,
    found_run,
    list_runs,
    unknown_task,
)
from nimbus.api.runs.models import (
    PurgedPartModel,
    RequestedRunModel,
    RunModel,
    RunNoteModel,
    RunsModel,
    run_model,
    run_summary,
)
from nimbus.api.services import ApiServices, if_available
from nimbus.domain.data.outputs import has_result, kept_results
from nimbus.domain.runs.purge import Said
from nimbus.domain.runs.run import Run, RunPart, RunPlace
from nimbus.domain.runs.task_run import TaskRun


class RunReadsModel(Model):
    """The versions of datasets that a run reads, by read; one that is not pinned yet is missing."""

    run_id: str
    reads: dict[str, list[VersionModel]]


class ResultsModel(Model):
    """Results of a run's successful tasks."""

    run_id: str
    results: Mapping[str, Mapping[str, Any]]
    """Results by task."""
    complete: bool
    """False: there are more; request them by task."""


MAX_RESULTS = 500


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["runs"], prefix=f"{prefix}/runs")

    @routes.get("")
    def runs(
        where: Annotated[Where, Query()],
        limit: Annotated[int, Query(ge=1, le=MAX_RUNS)] = 50,
        cursor: CursorText = None,
    ) -> RunsModel:
        """Live runs and runs in history, newest first. A page may be short without being the last."""
        runs = list_runs(services, where.filter, limit=limit, after=run_place(decoded(cursor)))
        return RunsModel(
            runs=[run_summary(run, archived=archived) for run, archived in runs.rows],
            history_complete=runs.complete,
            next_cursor=None if runs.next_after is None else encoded(runs.next_after),
            at_least=runs.at_least,
        )

    @routes.get("/{run_id}")
    def run(run_id: RunIdText) -> RunModel | RequestedRunModel:
        """One run: tasks, attempts, progress, and why waiting tasks wait.

        It can be read as soon as the start is answered: `pending` until a leader decides, or `refused`.
        """
        run = find_run_or_request(services, run_id)
        return shown_run(services, run) if isinstance(run, FoundRun) else run

    @routes.get("/{run_id}/reads")
    def reads(run_id: RunIdText) -> RunReadsModel:
        """The versions of datasets that a run reads."""
        pins = find_run(services, run_id).pins
        shown = {name: list(map(version_model, versions)) for name, versions in pins.items()}
        return RunReadsModel(run_id=run_id, reads=shown)

    @routes.get("/{run_id}/results")
    def results(
        run_id: RunIdText,
        task: Annotated[str | None, Query(description="Results of this task alone.")] = None,
    ) -> ResultsModel:
        """Results of a run's tasks, of 500 tasks at most."""
        return list_results(services, found_run(services, run_id), task)

    return routes


def run_place(key: Key | None) -> RunPlace | None:
    """The place in a cursor. Raises ObjectNotFoundError if it belongs to another list."""
    match key:
        case None:
            return None
        case (int(seconds), str(name)):
            return RunPlace(seconds, name)
        case _:
            raise unknown_cursor()


def shown_run(services: ApiServices, found_run: FoundRun, only: Sequence[TaskRun] | None = None) -> RunModel:
    """A run for the API, with the slots of open attempts. `only`: the tasks that it shows; None: all."""
    run = found_run.run
    named = run.tasks if only is None else {task.spec.name for task in only}
    opened = (
        () if run.state.is_final else (attempt for attempt in run.open_attempts() if attempt.task in named)
    )
    slots = services.reader.slots(opened)
    facts, servers = cluster_facts(services), services.spark_history
    shown = run_model(run, slots, facts, servers, archived=found_run.archived, only=only)
    gone = purged_parts(services, run) if found_run.archived else {}
    parts = [PurgedPartModel.from_records(said, part=part) for part, said in gone.items()]
    note = if_available(lambda: services.history.note(run.id)) if run.state.is_final else None
    noted = None if note is None else RunNoteModel.from_records(note.what, note)
    return shown.model_copy(update={"purged": parts, "noted": noted})


def purged_parts(services: ApiServices, run: Run) -> Mapping[RunPart, Said]:
    """The purged parts of a run. A run that has not ended has none."""
    gone = services.history.purged(run.id) if run.state.is_final else None
    return {} if gone is None else gone.parts


def list_results(services: ApiServices, found: FoundRun, task: str | None) -> ResultsModel:
    """Results of a run's tasks, of 500 at most, or of one task. Raises ObjectNotFoundError."""
    run = found.run
    if task is not None and task not in run.tasks:
        raise unknown_task(run, task)
    names = [name for name, of in run.tasks.items() if has_result(of) and task in (None, name)]
    shown = names[:MAX_RESULTS]
    if found.archived:
        kept = services.history.given(run.id).results if shown else {}
        given = {name: kept[name] for name in shown if name in kept}
    else:
        given = dict(kept_results(run, shown, services.reader.slots, services.history.given))
    texts = {str(name): result for name, result in given.items()}
    return ResultsModel(run_id=run.id, results=texts, complete=len(shown) == len(names))
