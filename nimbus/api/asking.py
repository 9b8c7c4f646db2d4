"""Who asks for a command: the principal that was found, or whom a request on loopback names.

The name in the header is nobody's identity, and is not looked at when a request has a token.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Annotated

from fastapi import Header

from nimbus.domain.access import AccessRole, Principal, PrincipalSource

HEADER = "X-Nimbus-User"
_principal: ContextVar[Principal | None] = ContextVar("principal", default=None)
_named: ContextVar[str | None] = ContextVar("named", default=None)


async def note_who_asks(
    user: Annotated[
        str | None,
        Header(
            alias=HEADER,
            pattern=r"^[!-~](?:[ -~]{0,98}[!-~])?$",
            description="Who asks, where no token is needed: kept with the command, and on the run that it "
            "starts. Nobody checks it.",
        ),
    ] = None,
    reason: Annotated[
        str | None,
        Header(
            alias="X-Nimbus-Reason",
            max_length=500,
            description="Why: kept with the command.",
        ),
    ] = None,
) -> None:
    """Note whom a request names; a dependency of every route."""
    del reason  # read where the principal is found; here it is documented
    _named.set(user)


def enter(found: Principal) -> None:
    """Say whose request it is that is answered now."""
    _principal.set(found)
    _named.set(None)


def ask_as_webhook(address: str) -> None:
    """Say that a request is answered because of its signature."""
    source = PrincipalSource.WEBHOOK
    enter(Principal(name="webhook", role=AccessRole.OPERATOR, source=source, address=address))


def principal() -> Principal:
    """Whose request it is that is answered now. LookupError: nobody has found out, which is a defect."""
    found = _principal.get()
    if found is None:
        raise LookupError("the request has no principal")
    return found


def is_known() -> bool:
    """Whether anybody has found out who asks: nobody does for what strangers may ask for."""
    return _principal.get() is not None


def who_asks(scheduler: str) -> str:
    """The name that is kept with a command. `scheduler`: the one that took it."""
    found = principal()
    if found.source is PrincipalSource.ANONYMOUS:
        return _named.get() or f"api@{scheduler}"
    return found.name
