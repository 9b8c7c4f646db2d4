"""Queues a command and answers: at once when it is durable or, on request, with the leader's decision.

With `Idempotency-Key`, a repeated write is done once, and gets the same answer. With `If-Match`, a write is
done only if its object has not changed since it was read: the command contains the revisions, and the leader
compares them when it decides. A comparison by the scheduler that receives the request would miss changes by
commands that still wait.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from nimbus.access.rules import check_command
from nimbus.api.caller import grants, principal, requester
from nimbus.api.models import CommandModel, OutcomeModel, ProblemModel
from nimbus.api.problems import ChangedError, KeyReusedError
from nimbus.api.seen import lookups
from nimbus.api.services import ApiServices
from nimbus.domain.cluster import revisions
from nimbus.domain.cluster.access import DENIALS, AccessDeniedError
from nimbus.domain.commands import (
    Command,
    CommandKey,
    CommandOutcome,
    ConditionalCommand,
    KeyUsedError,
    LiveRunCommand,
    StartRun,
)
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import CommandId, RunId
from nimbus.ports import CommandQueue

HEADER = "If-Match"
PATTERN = r"^[!-~](?:[ -~]{0,998}[!-~])?$"
_if_match: ContextVar[str | None] = ContextVar("if_match", default=None)


async def note_if_match(
    if_match: Annotated[
        str | None,
        Header(
            alias=HEADER,
            pattern=PATTERN,
            include_in_schema=False,  # documented only for routes in `submitting.CONDITIONAL`
        ),
    ] = None,
) -> None:
    """Store the condition of a request; a dependency of every route that queues commands."""
    _if_match.set(if_match)


def condition_of(command: Command) -> tuple[str, ...]:
    """The revisions that the current request names for its command; empty: it has no condition.

    A tag is also accepted without its quotes, which shells remove.

    Raises:
        ChangedError: it names no strong tag, and weak tags never match (RFC 9110, section 13.1.1).
        RefusedError: the command's object has no revision.
    """
    header = _if_match.get()
    if header is None:
        return ()
    if not isinstance(command, ConditionalCommand):
        raise RefusedError(
            "no_revision",
            f"If-Match cannot be a condition of {command.type}: its object has no revision.",
        )
    if header == revisions.ANY:
        return (revisions.ANY,)
    tags = (tag.strip() for tag in header.split(","))
    named = [tag.strip('"').partition("-")[0] for tag in tags if not tag.startswith("W/")]
    if not (known := tuple(name for name in named if name not in ("", revisions.ANY))):
        raise ChangedError("If-Match has no strong tag, and weak ones never match: nothing was done.")
    return known


def tag_with(response: Response, revision: str) -> None:
    """Set the revision of an answer's record. `EntityTags` makes a strong tag from it."""
    response.headers["ETag"] = f'"{revision}"'


_request: ContextVar[tuple[str, str] | None] = ContextVar("idempotency", default=None)


Queued = tuple[CommandId, RunId | None, CommandOutcome | None]
"""A command, its run, and its outcome if it is decided."""


async def note_key(
    request: Request,
    key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=r"^[!-~]{1,255}$",
            include_in_schema=False,  # tools that try requests would send the same key with many
        ),
    ] = None,
) -> None:
    """Store the key of a request; a dependency of every route that queues commands."""
    if key is None:
        _request.set(None)
        return
    digest = hashlib.sha256(f"{request.method} {request.url.path}\n".encode())
    digest.update(await request.body())
    if (condition := request.headers.get("If-Match")) is not None:
        digest.update(f"\nIf-Match: {condition}".encode())
    _request.set((key, digest.hexdigest()))


def note_delivery(name: str, body: bytes) -> None:
    """Let a delivery of a webhook be the key of its request."""
    _request.set((name, hashlib.sha256(body).hexdigest()))


def key_of_request() -> CommandKey | None:
    """The key of the current request; None: it has none."""
    noted = _request.get()
    if noted is None:
        return None
    key, request = noted
    # The scheduler's name is left out: the same request to another scheduler has the same key.
    whole = f"{requester('')}\n{key}".encode()
    return CommandKey(hash=hashlib.sha256(whole).hexdigest()[:32], request=request)


def queued_before(services: ApiServices, key: CommandKey) -> Queued | None:
    """The command of a key; None: the key is new.

    Raises KeyReusedError; RefusedError: the outcome of its command is no longer known; StoreUnavailableError.
    """
    for _ in range(2):  # the command may be decided between the two reads
        known = services.commands.keyed(key.hash)
        if known is None:
            return None
        if known.request != key.request:
            raise KeyReusedError
        if known.outcome is not None:
            return known.outcome.command, known.outcome.run_id, known.outcome
        for queued in services.reader.commands():
            if queued.key == key:
                return queued.id, getattr(queued.command, "run_id", None), None
    raise RefusedError(
        "outcome_unknown", "this Idempotency-Key was used, and what became of its command is not known."
    )


MAX_WAIT_S = 60.0

Wait = Annotated[
    float,
    Query(ge=0, le=MAX_WAIT_S, description="Seconds to wait for the leader's decision; 0: answer at once."),
]

Submitter = Callable[[Callable[[], Command] | Command], Awaitable[CommandModel]]

ACCEPTED_RESPONSES: dict[int | str, dict[str, object]] = {
    200: {"description": "Decided while waiting: accepted.", "model": CommandModel},
    202: {"description": "Durable; a leader will decide.", "model": CommandModel},
    409: {"description": "Decided while waiting: refused; `code` has the reason.", "model": ProblemModel},
}
ACCEPTED: dict[str, Any] = {"status_code": 202, "responses": ACCEPTED_RESPONSES}
"""Settings of a route that queues a command."""
CONDITIONAL: dict[str, Any] = {
    "status_code": 202,
    "responses": {
        **ACCEPTED_RESPONSES,
        412: {"description": "`If-Match` lacks the current revision: `changed`.", "model": ProblemModel},
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": HEADER,
                "in": "header",
                "required": False,
                "schema": {"type": "string", "pattern": PATTERN},
                "description": "Strong `ETag` of the object, as read: the write is done only if it "
                "has not changed since, else 412. `*`: only if it exists.",
            }
        ]
    },
}
"""The same, if the command can have a condition."""


async def _submit(
    services: ApiServices, response: Response, wait_s: float, make: Callable[[], Command] | Command
) -> CommandModel:
    """Queue a command; answer 202, or the outcome if it comes within `wait_s`.

    `make` builds the command on a worker thread, where it may read. With an `Idempotency-Key` that was sent
    before, nothing is queued: the answer is that of its command.

    Raises KeyReusedError, ChangedError, AccessDeniedError and StoreUnavailableError; RefusedError if a leader
    refused it while we waited.
    """

    def queue() -> Queued:
        key = key_of_request()
        if key is not None and (known := queued_before(services, key)) is not None:
            return known
        command = make() if callable(make) else make
        run_id = command.run_id if isinstance(command, StartRun | LiveRunCommand) else None
        asks = principal()
        check_command(asks, command, lookups(services), grants())
        if_match = condition_of(command)
        asks = replace(asks, reason=getattr(command, "reason", "") or asks.reason)
        name = requester(services.health.info().id)
        try:
            queued = services.commands.submit(
                command, submitted_by=name, asked_by=asks, key=key, if_match=if_match
            )
        except KeyUsedError:  # the same request was queued a moment ago
            if key is not None and (known := queued_before(services, key)) is not None:
                return known
            raise
        return queued, run_id, None

    command_id, run_id, outcome = await run_in_threadpool(queue)
    if outcome is None and wait_s > 0:
        outcome = await await_outcome(services.commands, command_id, wait_s)
    if outcome is not None and not outcome.accepted:
        raise _refusal(outcome)
    response.status_code = 202 if outcome is None else 200
    return command_model(command_id, outcome, run_id=run_id)


async def _submitter(request: Request, response: Response, wait: Wait = 0) -> Submitter:
    """Read what a route needs to submit a command, beside the command."""
    return partial(_submit, request.app.state.services, response, wait)


Submit = Annotated[Submitter, Depends(_submitter)]
"""The parameter of a route that submits a command: see `_submit`."""


def _refusal(outcome: CommandOutcome) -> NimbusError:
    """The error for a leader's refusal."""
    if outcome.code in DENIALS:
        return AccessDeniedError(outcome.code, outcome.message)
    if outcome.code == ChangedError.code:
        return ChangedError(outcome.message)
    return RefusedError(outcome.code, outcome.message)


async def await_outcome(queue: CommandQueue, command: CommandId, wait_s: float) -> CommandOutcome | None:
    """Wait for a decision on the event loop, so that a waiting request takes no thread.

    Raises StoreUnavailableError: ZooKeeper does not answer.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    while True:
        look_again = asyncio.Event()

        def changed(event: asyncio.Event = look_again) -> None:
            with suppress(RuntimeError):  # the server has stopped, and its loop is closed
                loop.call_soon_threadsafe(event.set)

        outcome = await run_in_threadpool(queue.outcome, command, changed)
        if outcome is not None:
            return outcome
        try:
            async with asyncio.timeout_at(deadline):
                await look_again.wait()
        except TimeoutError:
            return await run_in_threadpool(queue.outcome, command)


def command_model(
    command_id: CommandId, outcome: CommandOutcome | None, *, run_id: str | None = None
) -> CommandModel:
    """A command, for the API."""
    if outcome is None:
        return CommandModel(command_id=command_id, status="pending", run_id=run_id)
    status = "accepted" if outcome.accepted else "refused"
    shown = OutcomeModel.model_validate(outcome)
    return CommandModel(command_id=command_id, status=status, run_id=run_id, outcome=shown)
