"""Who asks for a command: the person that a request names, else the scheduler that took it.

A name, not an identity: nobody checks it. It is there for people who look at a run later.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Annotated

from fastapi import Header

HEADER = "X-Nimbus-User"
_asking: ContextVar[str | None] = ContextVar("asking", default=None)


async def note_who_asks(
    user: Annotated[
        str | None,
        Header(
            alias=HEADER,
            pattern=r"^[!-~](?:[ -~]{0,98}[!-~])?$",
            description="Who asks: kept with the command, and on the run that it starts. Nobody checks it.",
        ),
    ] = None,
) -> None:
    """Note whom a request names; a dependency of every route."""
    _asking.set(user)


def ask_as(name: str) -> None:
    """Say who asks, for a request that names nobody."""
    _asking.set(name)


def who_asks(scheduler: str) -> str:
    """Whom the request that is answered now names. `scheduler`: the one that took it."""
    return _asking.get() or f"api@{scheduler}"
