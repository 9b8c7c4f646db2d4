"""Entity tags: `ETag`, `If-None-Match` of reads, and `If-Match` of writes.

A read answers 304 if the client has the current answer already. A write with `If-Match` is done only if its
object has not changed since it was read: the command contains the revisions, and the leader compares
them when it decides. A comparison by the scheduler that receives the request would miss changes by commands
that still wait.
"""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from typing import Annotated

from fastapi import Header, Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    """Set the revision of an answer's record. `EntityTags` makes a strong tag from it."""
    response.headers["ETag"] = f'"{revision}"'


JSON = "application/json"


class EntityTags:
    """Adds an `ETag` to JSON answers to GET, and omits a body that `If-None-Match` names. Plain ASGI.

    Answers built from several records have weak tags, which are hashes of the body. If a route has set a
    revision (`tag_with`), the tag is strong: that revision plus the hash of the body.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")
        head: Message | None = None
        parts: list[bytes] = []

        async def tagged(message: Message) -> None:
            nonlocal head
            if message["type"] == "http.response.start" and _is_json(message):
                head = message
            elif head is None:
                await send(message)
            else:
                parts.append(message.get("body", b""))
                if not message.get("more_body", False):
                    await _answer(head, b"".join(parts), known, send)

        await self._app(scope, receive, tagged)


def _is_json(start: Message) -> bool:
    return start["status"] == 200 and Headers(raw=start["headers"]).get("content-type") == JSON


async def _answer(start: Message, body: bytes, known: str, send: Send) -> None:
    headers = MutableHeaders(scope=start)
    given, digest = headers.get("ETag"), hashlib.sha256(body).hexdigest()[:32]
    tag = f'"{digest}"' if given is None else f'{given[:-1]}-{digest}"'
    headers["ETag"] = f"W/{tag}" if given is None else tag
    if tag in [one.strip().removeprefix("W/") for one in known.split(",")] or known.strip() == "*":
        start["status"], body = 304, b""
        del headers["content-length"], headers["content-type"]
    await send(start)
    await send({"type": "http.response.body", "body": body})
