"""The header `If-Match`: a write is done only if its object has not changed since it was read.

The command contains the revisions, and the leader compares them when it decides. A comparison by the
scheduler that receives the request would miss changes by commands that still wait.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Annotated

from fastapi import Header, Response

from nimbus.domain import revisions
from nimbus.domain.commands import Command, ConditionalCommand
from nimbus.domain.errors import NimbusError, RefusedError

HEADER = "If-Match"
PATTERN = r"^[!-~](?:[ -~]{0,998}[!-~])?$"
_if_match: ContextVar[str | None] = ContextVar("if_match", default=None)


class ChangedError(NimbusError):
    """The object of a request does not have a revision that `If-Match` names. Nothing was done."""

    code = "changed"


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
    """Set the revision of an answer's record. `nimbus.api.entity_tags` makes a strong tag from it."""
    response.headers["ETag"] = f'"{revision}"'
