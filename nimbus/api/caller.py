"""The requester of a command: the authenticated principal, or the name in a request on loopback.

The name in the header is not an identity, and is ignored when a request has a token.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Annotated

from fastapi import Header

from nimbus.domain.cluster.access import AccessGrant, AccessRole, Principal, PrincipalSource, Thing, role_on

HEADER = "X-Nimbus-User"
_principal: ContextVar[Principal | None] = ContextVar("principal", default=None)
_named: ContextVar[str | None] = ContextVar("named", default=None)
_grants: ContextVar[tuple[AccessGrant, ...]] = ContextVar("grants", default=())


async def note_requester(
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
    """Store the name in the request's header; a dependency of every route."""
    del reason  # read during authentication; declared here for the documentation
    _named.set(user)


def set_caller(principal: Principal, grants: Iterable[AccessGrant] = ()) -> None:
    """Set the principal of the current request. `grants`: those of the cluster."""
    _principal.set(principal)
    _grants.set(tuple(grant for grant in grants if principal.owns(grant.who)))
    _named.set(None)


def grants() -> tuple[AccessGrant, ...]:
    """The grants of the current principal."""
    return _grants.get()


def role_of(thing: Thing | None) -> AccessRole:
    """The role of the current principal on something; None: on the cluster."""
    return role_on(principal(), thing, _grants.get())


def highest_role() -> AccessRole:
    """The highest role of the current principal on anything."""
    return max((principal().role, *(grant.role for grant in _grants.get())), key=lambda role: role.rank)


def set_webhook_caller(address: str) -> None:
    """Set the principal of a request that is accepted by its signature."""
    source = PrincipalSource.WEBHOOK
    set_caller(Principal(name="webhook", role=AccessRole.OPERATOR, source=source, address=address))


def principal() -> Principal:
    """The principal of the current request. Raises LookupError if it was not set, which is a defect."""
    caller = _principal.get()
    if caller is None:
        raise LookupError("the request has no principal")
    return caller


def is_known() -> bool:
    """True when the current request has a principal. Open paths do not set one."""
    return _principal.get() is not None


def requester(scheduler: str) -> str:
    """The name that is stored with a command. `scheduler`: the scheduler that received it."""
    caller = principal()
    if caller.source is PrincipalSource.ANONYMOUS:
        return _named.get() or f"api@{scheduler}"
    return caller.name
