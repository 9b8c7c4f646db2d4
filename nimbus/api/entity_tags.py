"""Answers 304 if the client has the current answer already. Plain ASGI."""

from __future__ import annotations

import hashlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

JSON = "application/json"


class EntityTags:
    """Adds an `ETag` to JSON answers to GET, and omits a body that `If-None-Match` names.

    Answers built from several records have weak tags, which are hashes of the body. If a route has set a
    revision (`nimbus.api.conditions.tag_with`), the tag is strong: that revision plus the hash of the body.
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
