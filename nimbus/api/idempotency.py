"""The header `Idempotency-Key`: a repeated write is done once, and gets the same answer."""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from typing import Annotated

from fastapi import Header, Request

from nimbus.api.asking import who_asks
from nimbus.api.services import ApiServices
from nimbus.domain.commands import CommandKey, CommandOutcome
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import CommandId, RunId

_request: ContextVar[tuple[str, str] | None] = ContextVar("idempotency", default=None)


Queued = tuple[CommandId, RunId | None, CommandOutcome | None]
"""A command, its run, and its outcome if it is decided."""


class KeyReusedError(NimbusError):
    """The key was used before, with another request."""

    code = "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__(
            "this Idempotency-Key was sent within the last 24 hours with another method, path or body: "
            "choose a new key for each new request."
        )


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
    whole = f"{who_asks('')}\n{key}".encode()
    return CommandKey(hash=hashlib.sha256(whole).hexdigest()[:32], request=request)


def queued_before(services: ApiServices, key: CommandKey) -> Queued | None:
    """The command of a key. None: the key is new.

    Raises:
        KeyReusedError: the key was sent with another request.
        RefusedError: the outcome of the key's command is no longer known.
        StoreUnavailableError: no answer.
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
