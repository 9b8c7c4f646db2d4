"""Turns a command into its answer: durable at once, then, if asked to wait, with the leader's decision."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import Query, Response

from nimbus.api.models import CommandModel, OutcomeModel
from nimbus.api.problems import NotFoundError
from nimbus.api.services import ApiServices
from nimbus.domain.commands import Command, CommandOutcome
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import CommandId

MAX_WAIT_S = 60.0

Wait = Annotated[
    float,
    Query(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the leader's decision; 0: answer at once."),
]

ACCEPTED_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {"description": "Decided while waiting: accepted."},
    202: {"description": "Durable; a leader will decide.", "model": CommandModel},
    409: {"description": "Decided while waiting: refused; `code` says why."},
}


def submit(
    services: ApiServices, command: Command, response: Response, *, wait_s: float, run_id: str | None = None
) -> CommandModel:
    """Queue `command`; answer 202, or the outcome if it comes within `wait_s`.

    Raises:
        RefusedError: a leader refused it while we waited.
        NotFoundError: refused, since what it is about is not there.
        StoreUnavailableError: it could not be queued.
    """
    command_id = services.commands.submit(command, submitted_by=f"api@{services.health.info().id}")
    outcome = None
    if wait_s > 0:
        outcome = services.commands.await_outcome(command_id, timedelta(seconds=wait_s))
    if outcome is not None and not outcome.accepted:
        # A release that is not there is a broken reference within the request, so only these two are 404.
        if outcome.code in ("unknown_pipeline", "unknown_run"):
            raise NotFoundError(outcome.code, outcome.message)
        raise RefusedError(outcome.code, outcome.message)
    response.status_code = 202 if outcome is None else 200
    return command_model(command_id, outcome, run_id=run_id)


def command_model(
    command_id: CommandId, outcome: CommandOutcome | None, *, run_id: str | None = None
) -> CommandModel:
    """A command as the API shows it."""
    if outcome is None:
        return CommandModel(command_id=command_id, status="pending", run_id=run_id)
    status = "accepted" if outcome.accepted else "refused"
    shown = OutcomeModel.model_validate(outcome)
    return CommandModel(command_id=command_id, status=status, run_id=run_id, outcome=shown)
