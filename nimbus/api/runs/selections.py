"""Selections: stop, repeat, pause or resume many runs or pipelines with one command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import ConfigDict, Field

from nimbus.api.models import CommandModel, Model
from nimbus.api.paging import Where
from nimbus.api.requests import ReasonBody, RequestBody, RunIdText
from nimbus.api.runs.lookup import MAX_RUNS, list_runs, read_in_parts
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED, Submit
from nimbus.domain.commands import MAX_SELECTED, ActOnSelection
from nimbus.domain.errors import RefusedError
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.pipelines.filters import Filter
from nimbus.domain.runs.run import ListedRun, Run

MAX_LISTED = 20
"""How many pages of MAX_RUNS runs a selection looks through."""
_NAMED = 5
_OF_PIPELINES = {"pipeline", "tag", "owner"}


class SelectedWhere(Where):
    """A filter, as the list of runs has it. Of pipelines: `pipeline`, `tag` and `owner`."""

    model_config = ConfigDict(extra="forbid")


class SelectedBody(RequestBody):
    """What to do with which runs or pipelines."""

    action: Literal["stop", "rerun", "pause", "resume"]
    of: Literal["runs", "pipelines"] = "runs"
    names: list[RunIdText] = Field(
        default_factory=list, max_length=MAX_SELECTED, description="Runs or pipelines; or a filter."
    )
    filter: SelectedWhere | None = None
    limit: Annotated[int, Field(ge=1, le=MAX_SELECTED)] = 100
    """More are refused."""
    scope: Literal["all", "failed"] = Field("failed", description="Of a rerun: which tasks.")
    release: Literal["same", "latest"] = Field("same", description="Of a rerun; `latest`: the active one.")


class ActOnSelectionBody(SelectedBody, ReasonBody):
    """A selection that was looked at."""

    token: str | None = Field(
        None, max_length=64, description="That of the preview: nothing is done if others are selected now."
    )


class SelectedModel(Model):
    """One target of a selection."""

    name: str
    pipeline: str
    state: str


class SelectionModel(Model):
    """What a selection would do. Nothing was done."""

    action: str
    of: str
    count: int
    token: str
    targets: list[SelectedModel]


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["selections"], prefix=f"{prefix}/selections")

    @routes.post("/preview")
    def preview(body: SelectedBody) -> SelectionModel:
        """What a selection would act on. Send its token with the selection."""
        return selected(services, body)

    @routes.post("", **ACCEPTED)
    async def act(body: ActOnSelectionBody, submit: Submit) -> CommandModel:
        """Do the same with each selected run or pipeline, by a command for each.

        Their outcomes are listed by `GET /commands?of=`, with the id of this command.
        """
        return await submit(lambda: _ordered(services, body))

    return routes


def _ordered(services: ApiServices, body: ActOnSelectionBody) -> ActOnSelection:
    selection = selected(services, body)
    if body.filter is not None and body.token is None:
        raise RefusedError("no_preview", "a filter needs the token of its preview.")
    if body.token not in (None, selection.token):
        raise RefusedError(
            "selection_changed",
            f"{selection.count} {body.of} are selected now, and not those of the preview: nothing was done.",
        )
    return ActOnSelection(
        action=body.action,
        of=body.of,
        targets={target.name: target.pipeline for target in selection.targets}
        if body.of == "runs"
        else _releases(services, selection.targets),
        reason=body.reason,
        scope=body.scope,
        same_release=body.release == "same",
    )


def _releases(services: ApiServices, targets: Iterable[SelectedModel]) -> dict[str, str]:
    records = {str(record.name): record for record in services.reader.pipelines()}
    return {target.name: records[target.name].release or records[target.name].published for target in targets}


def selected(services: ApiServices, body: SelectedBody) -> SelectionModel:
    """The targets of a selection.

    Raises RefusedError: there are none, or more than its limit, or a named one does not fit the action.
    """
    if (body.filter is None) is not bool(body.names):
        raise RefusedError("bad_selection", "a selection has either names or a filter.")
    if body.of == "pipelines" and body.action not in ("pause", "resume"):
        raise RefusedError(
            "bad_selection", f"{body.action} is for runs: pipelines can only be paused or resumed."
        )
    if body.of == "pipelines" and body.filter is not None and body.filter.model_fields_set - _OF_PIPELINES:
        named = ", ".join(
            sorted(body.filter.model_dump(by_alias=True, exclude=_OF_PIPELINES, exclude_unset=True))
        )
        raise RefusedError(
            "bad_selection", f"filter: {named} is of runs: select pipelines by pipeline, tag and owner."
        )
    matches = _pipelines(services, body) if body.of == "pipelines" else _runs(services, body)
    targets: dict[str, SelectedModel] = {}
    for target in matches:
        targets[target.name] = target
        if len(targets) > body.limit:
            raise RefusedError(
                "selection_too_large",
                f"more than {body.limit} {body.of} are selected: name fewer, narrow the filter, or raise the "
                f"limit, up to {MAX_SELECTED}.",
            )
    if not targets:
        raise RefusedError(
            "nothing_selected",
            f"no {body.of[:-1]} to {body.action} passes the filter: change it, or name some.",
        )
    said = " ".join((body.action, body.of, body.scope, body.release, *sorted(targets)))
    return SelectionModel(
        action=body.action,
        of=body.of,
        count=len(targets),
        token=sha256(said.encode()).hexdigest()[:16],
        targets=list(targets.values()),
    )


def _check_fit(names: Iterable[str], targets: Mapping[str, str | None]) -> None:
    """Raise RefusedError if named things are unknown, or do not fit. `targets`: why each does not fit."""
    misfits = [(name, targets.get(name, "is not known")) for name in names]
    bad = [f"{name} {why}" for name, why in misfits if why is not None]
    if bad:
        more = f" and {len(bad) - _NAMED} more" if len(bad) > _NAMED else ""
        raise RefusedError(
            "bad_selection", f"{', '.join(bad[:_NAMED])}{more}: leave these out. Nothing was done."
        )


def _pipelines(services: ApiServices, body: SelectedBody) -> Iterator[SelectedModel]:
    records = services.reader.pipelines()
    wanted = PipelineState.ACTIVE if body.action == "pause" else PipelineState.PAUSED

    def why_not(record: PipelineRecord) -> str | None:
        return None if record.state is wanted else f"is {record.state}"

    if body.filter is None:
        _check_fit(body.names, {record.name: why_not(record) for record in records})
    only = None if body.filter is None else body.filter.filter
    for entry in records:
        takes = str(entry.name) in body.names if only is None else only.takes_pipeline(entry)
        if takes and why_not(entry) is None:
            yield SelectedModel(name=entry.name, pipeline=entry.name, state=entry.state.value)


def _runs(services: ApiServices, body: SelectedBody) -> Iterator[SelectedModel]:
    if body.filter is None:
        live = services.reader.run_list()
        known = [live.get(name) or services.history.read(name) for name in body.names]
        runs: Iterable[Run | ListedRun] = [run for run in known if run is not None]
        _check_fit(body.names, {run.id: _why_not(body, run) for run in runs})
    else:
        runs = (_ended if body.action == "rerun" else _live)(services, body.filter.filter)
    for run in runs:
        if _why_not(body, run) is None:
            yield SelectedModel(name=run.id, pipeline=run.pipeline, state=run.state.value)


def _why_not(body: SelectedBody, run: Run | ListedRun) -> str | None:
    """Why the action is not for a run; None: it is."""
    if run.state.is_final is not (body.action == "rerun"):
        return f"is {run.state}"
    is_paused = run.paused is not None
    if body.action in ("pause", "resume") and is_paused is not (body.action == "resume"):
        return "is paused already" if is_paused else "is not paused"
    return None


def _live(services: ApiServices, only: Filter) -> Iterable[Run]:
    pipelines = only.pipelines(services.reader.pipelines())
    listed = [
        run
        for run in services.reader.run_list().values()
        if not run.state.is_final
        and (pipelines is None or run.pipeline in pipelines)
        and only.takes_listed(run)
    ]
    listed.sort(key=lambda run: (run.created_at, run.id))
    return (run for run in read_in_parts(services.reader, [run.id for run in listed]) if only.takes_run(run))


def _ended(services: ApiServices, only: Filter) -> Iterable[Run]:
    """Ended runs, oldest first. Raises RefusedError if too many must be read, or history is away."""
    runs: list[Run] = []
    after = None
    for _ in range(MAX_LISTED):
        page = list_runs(services, only, limit=MAX_RUNS, after=after)
        if not page.complete:
            raise RefusedError("history_unavailable", "history does not answer: old runs are not known.")
        runs += (run for run, _ in page.rows if run.state.is_final)
        if page.next_after is None or len(runs) > MAX_SELECTED:
            return runs[::-1]
        after = page.next_after
    raise RefusedError("selection_too_large", "too many runs must be searched: give a pipeline, or dates.")
