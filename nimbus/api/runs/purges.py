"""Purges: delete parts of runs that have ended."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field, StringConstraints

from nimbus.api.models import CommandModel, Model
from nimbus.api.requests import BoundText, PipelineNameText, RequestBody, RunIdText
from nimbus.api.runs.lookup import read_in_parts
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED, Submit
from nimbus.definition.intervals import bound_of
from nimbus.domain.commands import PurgeRuns
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId
from nimbus.domain.runs.purge import KeptReason, Used, is_restored, losing, takes, used_runs, why_kept
from nimbus.domain.runs.run import Run, RunPart, RunState


class PlannedPurgeModel(Model):
    """The plan of a purge for one run."""

    run_id: str
    pipeline: str
    state: RunState
    finished_at: datetime | None
    parts: list[RunPart]
    """Parts that would be deleted, without those that are deleted already."""
    kept: str | None
    """Why its outputs and history are kept; null: they are not."""


class PurgePlanModel(Model):
    """The plan of a purge."""

    runs: list[PlannedPurgeModel]
    """Runs, newest first."""
    complete: bool
    """False: there may be more. For a pipeline, the newest 200 runs before the date are checked."""


MAX_PLANNED = 200


class PurgeBody(RequestBody):
    """The parts to delete, and the runs: one run, or those of a pipeline that ended before a date."""

    run_id: RunIdText | None = None
    pipeline: PipelineNameText | None = None
    before: BoundText | None = Field(None, description="A day in UTC, or a time with an offset.")
    states: list[RunState] = Field(default_factory=list, description="Empty: runs in any final state.")
    parts: list[RunPart] = Field(
        default_factory=lambda: [RunPart.HISTORY],
        min_length=1,
        description="History includes logs and outputs.",
    )
    reason: Annotated[str, StringConstraints(strip_whitespace=True, max_length=500)] = ""

    def command(self) -> PurgeRuns:
        """The command. Raises RefusedError if the runs are not clear."""
        if (self.run_id is None) is (self.pipeline is None):
            raise RefusedError("bad_purge", "a purge needs either run_id, or pipeline and before.")
        if (self.pipeline is None) is not (self.before is None):
            raise RefusedError("bad_purge", "pipeline and before of a purge belong together.")
        return PurgeRuns(
            parts=tuple(part for part in RunPart if part in self.parts),
            reason=self.reason,
            run_id=self.run_id,
            pipeline=self.pipeline,
            before=None if self.before is None else bound_of(self.before, UTC),
            states=tuple(self.states),
        )


class NewPurgeBody(PurgeBody):
    """A purge with its reason."""

    reason: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500, pattern=r"\S")
    ]


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["runs"], prefix=prefix)

    @routes.post("/purges", **ACCEPTED)
    async def purge(body: NewPurgeBody, submit: Submit) -> CommandModel:
        """Delete parts of ended runs. Once it is accepted, the leader does it within minutes."""
        return await submit(body.command)

    @routes.post("/purge-plan")
    def plan(body: PurgeBody) -> PurgePlanModel:
        """Plan a purge; deletes nothing."""
        return _plan(services, body.command())

    return routes


def _plan(services: ApiServices, what: PurgeRuns) -> PurgePlanModel:
    used = _used(services)
    runs = list(islice(_candidates(services, what), MAX_PLANNED + 1))
    shown, going = [], set[RunId]()
    for run in (run for run in runs[:MAX_PLANNED] if takes(what, run)):
        kept = why_kept(
            run,
            used,
            set(services.history.reusers(run.id)) - going,
            KeptReason.PUBLISHED
            if is_restored(run, used, services.reader.dataset)
            else services.history.kept_version(run, services.clock.now()),
        )
        parts = losing(what, kept)
        going |= {run.id} if RunPart.OUTPUTS in parts else set()  # it then no longer counts as a reuser
        shown.append(_planned(services, run, parts, kept))
    return PurgePlanModel(runs=shown, complete=len(runs) <= MAX_PLANNED)


def _used(services: ApiServices) -> Used:
    """Runs that the live state names. Only runs that read datasets, or have selected tasks, name others."""
    waiting = services.reader.commands()  # before runs, because commands become runs
    listed = services.reader.run_list()
    readers = {record.name for record in services.reader.pipelines() if record.profile.reads}
    naming = [
        run.id
        for run in listed.values()
        if run.selected or (run.pipeline in readers and not run.state.is_final)
    ]
    used = used_runs(
        waiting,
        read_in_parts(services.reader, naming),
        lambda run: services.reader.run(run) or services.history.read(run),
    )
    return replace(used, there=frozenset(RunId(name) for name in listed))


def _candidates(services: ApiServices, what: PurgeRuns) -> Iterator[Run]:
    history = services.history
    if what.run_id is not None:
        ids = iter((what.run_id,))
    elif what.before is not None:
        ids = history.created_before(what.before, what.pipeline)
    else:
        return
    yield from (run for run_id in ids if (run := history.read(run_id)) is not None)


def _planned(
    services: ApiServices, run: Run, parts: tuple[RunPart, ...], kept: KeptReason | None
) -> PlannedPurgeModel:
    gone = services.history.purged(run.id)
    return PlannedPurgeModel.from_records(
        run,
        run_id=run.id,
        parts=[part for part in parts if gone is None or part not in gone.parts],
        kept=kept,
    )
