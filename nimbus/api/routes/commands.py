"""Commands: waiting and decided ones, with requester, address and reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool

from nimbus.access.oidc import LONGEST_NAME, NAME_PREFIX
from nimbus.api.models import CommandModel, Model, PageModel
from nimbus.api.paging import CursorText, PageQuery
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import CommandIdText, PipelineNameText
from nimbus.api.services import ApiServices, if_available
from nimbus.api.submitting import Wait, await_outcome, command_model
from nimbus.domain.cluster.access import AccessRole, Principal, PrincipalSource
from nimbus.domain.commands import CommandOutcome, names_in
from nimbus.domain.ids import CommandId, PipelineName

MAX_COMMANDS = 500
MAX_REFUSALS = 25_000
"""Limit of refusals that are read for a later page, or for a filter by kind or requester."""
KindText = Annotated[str, Query(pattern=r"^[a-z_]{1,40}$", description="For example `start_run`.")]
SubmitterText = Annotated[
    str, Query(max_length=len(NAME_PREFIX) + LONGEST_NAME, description="The requester, as shown in the list.")
]
_NOBODY = Principal(name="", role=AccessRole.NONE, source=PrincipalSource.ANONYMOUS)


class ListedCommandModel(Model):
    """One line of the list of commands."""

    command_id: str
    status: str
    """`pending`, `accepted` or `refused`."""
    at: datetime
    """When it was decided; for a pending command, when it was requested."""
    kind: str
    """For example `start_run`."""
    pipeline: str | None
    run_id: str | None
    """The run of a start; for a pending command, its run."""
    names: Mapping[str, str] = {}
    """Other names in it: `run`, `task`, `release`, `backfill`, `pool`, `worker`, `token`, `name`."""
    submitted_by: str
    address: str
    """Address of the client; empty: not known."""
    token_id: str
    """Id of the token; empty: no token was needed."""
    reason: str
    epoch: int | None
    """Epoch of the leader that decided; null: not decided."""
    code: str
    """`ok`, or the code of the refusal; empty while it is pending."""
    message: str


class CommandsModel(PageModel):
    """Commands, newest first."""

    commands: list[ListedCommandModel]
    history_complete: bool
    """False: history did not answer, and old commands may be missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandFilter:
    """Filters of the list; None: any."""

    pipeline: PipelineName | None = None
    kind: str | None = None
    submitted_by: str | None = None
    release: str | None = None
    """A release that the command names."""
    of: str | None = None
    """The command of a selection: only commands for its targets."""
    refused: bool = False
    """True: only refusals."""

    def fits(self, row: ListedCommandModel) -> bool:
        """True when a command passes the filters."""
        return (
            self.pipeline in (None, row.pipeline)
            and self.kind in (None, row.kind)
            and self.submitted_by in (None, row.submitted_by)
            and self.release in (None, row.names.get("release"))
            and (self.of is None or row.command_id.startswith(f"{self.of}-"))
            and not (self.refused and row.status != "refused")
        )


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["cluster"], prefix=f"{prefix}/commands")

    @routes.get("")
    def commands(
        refused: Annotated[bool, Query(description="Only refusals.")] = False,
        pipeline: PipelineNameText | None = None,
        kind: KindText | None = None,
        submitted_by: SubmitterText | None = None,
        of: Annotated[
            CommandIdText | None, Query(description="A selection: only the commands for its targets.")
        ] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_COMMANDS)] = 50,
        cursor: CursorText = None,
    ) -> CommandsModel:
        """Commands, newest first, as long as history is kept."""
        wanted = CommandFilter(
            pipeline=pipeline, kind=kind, submitted_by=submitted_by, of=of, refused=refused
        )
        return list_commands(services, wanted, PageQuery(limit, cursor), pending_commands(services))

    @routes.get("/{command_id}")
    async def command(command_id: CommandIdText, wait: Wait = 0) -> CommandModel:
        """The state of a command. Outcomes are kept for about an hour."""
        outcome = await run_in_threadpool(known_command, services, command_id)
        if outcome is None and wait > 0:
            outcome = await await_outcome(services.commands, command_id, wait)
        return command_model(command_id, outcome)

    return routes


def known_command(services: ApiServices, command: CommandId) -> CommandOutcome | None:
    """The outcome of a command; None while it waits.

    Raises ObjectNotFoundError: the command neither waits nor has an outcome.
    """
    outcome = services.commands.outcome(command)
    if outcome is None and command not in {queued.id for queued in services.reader.commands()}:
        outcome = services.commands.outcome(command)  # decided between the two reads
        if outcome is None:
            raise ObjectNotFoundError(
                "unknown_command",
                f"command {command} is not waiting and has no outcome: it was never submitted, or was "
                "decided more than an hour ago. Check the object that it was to change.",
            )
    return outcome


def list_commands(
    services: ApiServices,
    wanted: CommandFilter,
    paging: PageQuery,
    pending: Iterable[ListedCommandModel] = (),
) -> CommandsModel:
    """A page of decided commands and of `pending` ones."""
    outcomes = services.commands.outcomes()  # before history, so that a moving outcome is in both
    others = (wanted.kind, wanted.submitted_by, wanted.release, wanted.of)
    is_first = paging.after is None and not any(others)
    most = MAX_REFUSALS if paging.limit is None or not is_first else paging.limit + 1
    past = if_available(lambda: services.history.outcomes(wanted.pipeline, most, refused=wanted.refused))
    known = {(outcome.decided_at, outcome.command): outcome for outcome in (*(past or ()), *outcomes)}
    commands = [row for row in (*map(_decided, known.values()), *pending) if wanted.fits(row)]
    page = paging.page(commands, lambda row: (row.at.isoformat(), row.command_id), newest_first=True)
    return CommandsModel(commands=page.rows, history_complete=past is not None, **page.rest)


def _decided(outcome: CommandOutcome) -> ListedCommandModel:
    return ListedCommandModel.from_records(
        outcome,
        outcome.asked_by or _NOBODY,
        command_id=outcome.command,
        status="accepted" if outcome.accepted else "refused",
        at=outcome.decided_at,
    )


def pending_commands(services: ApiServices) -> Iterator[ListedCommandModel]:
    """Commands that wait for a decision."""
    listed = services.reader.run_list()
    for queued in services.reader.commands():
        run_id = getattr(queued.command, "run_id", None)
        run = listed.get(run_id or "")
        pipeline = getattr(queued.command, "pipeline", None)
        yield ListedCommandModel.from_records(
            queued,
            queued.asked_by or _NOBODY,
            command_id=queued.id,
            status="pending",
            at=queued.submitted_at,
            kind=queued.command.type,
            pipeline=run.pipeline if pipeline is None and run is not None else pipeline,
            run_id=run_id,
            names=names_in(queued.command),
            epoch=None,
            code="",
            message="",
        )
