"""The stream of events, which sends changes so that pages need not poll."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request
from fastapi.sse import format_sse_event
from pydantic import StringConstraints
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from nimbus.access.gate import Gate
from nimbus.api.asking import grants, principal
from nimbus.api.event_hub import EventHub, Listener
from nimbus.domain.topics import PATTERN

MOST_TOPICS = 20
"""Limit of topics of one stream."""
PING_S = 15.0
RETRY_MS = 2000
MEDIA_TYPE = "text/event-stream"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_Topic = Annotated[str, StringConstraints(pattern=f"^{PATTERN.pattern}$", max_length=140)]
_Version = Annotated[int, Query(ge=0, lt=1 << 63)]


def router(hub: EventHub, gate: Gate, prefix: str) -> APIRouter:
    """Build the route over `hub`, below `prefix`. A stream ends when `gate` no longer admits its caller."""
    routes = APIRouter(tags=["events"], prefix=f"{prefix}/events")

    @routes.get(
        "",
        response_class=Response,
        responses={
            200: {"content": {MEDIA_TYPE: {}}, "description": "Server-sent events `changed` and `reset`."}
        },
    )
    async def events(
        request: Request,
        topic: Annotated[list[_Topic], Query(min_length=1, max_length=MOST_TOPICS)],
        since: Annotated[
            _Version | None,
            Query(description="Version of the data that the caller has read. Without it: the current one."),
        ] = None,
        last_event_id: Annotated[
            _Version | None, Header(description="As `since`, but with precedence. Browsers send it.")
        ] = None,
    ) -> Response:
        """A stream of changes: `changed` names a topic; after `reset`, anything may have changed.

        It ends when the scheduler stops, and within 15 s after it reads that the caller's token
        has ended or that its grants have changed.
        """
        seen = since if last_event_id is None else last_event_id
        if request.scope.get("is_head"):
            return Response(media_type=MEDIA_TYPE, headers=_HEADERS)
        asks, held = principal(), grants()
        topic = await run_in_threadpool(request.app.state.reader.topics, topic)
        listener = await hub.join(topic, seen, asks.account or asks.address)
        return _EventStream(hub, listener, seen, lambda: gate.still_admits(asks, datetime.now(UTC), held))

    return routes


class _EventStream(StreamingResponse):
    """A response that leaves the hub even if the client disconnects before the first byte."""

    def __init__(
        self, hub: EventHub, listener: Listener, since: int | None, admitted: Callable[[], bool]
    ) -> None:
        super().__init__(_events(hub, listener, since, admitted), media_type=MEDIA_TYPE, headers=_HEADERS)
        self._leave = partial(hub.leave, listener)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def _events(
    hub: EventHub, listener: Listener, since: int | None, admitted: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The bytes of a stream. Only the last of several events has the id, when all have arrived."""
    seen = hub.version if since is None or listener.reset else since
    yield format_sse_event(retry=RETRY_MS, id=str(seen))
    while not listener.ended and admitted():
        listener.wake.clear()
        if listener.reset:
            listener.changed.clear()
            listener.reset, seen = False, hub.version
            yield _event("reset", {"version": seen}, seen)
        elif listener.changed:
            topics, seen = sorted(listener.changed), max(seen, hub.version)
            listener.changed.clear()
            yield _changed(topics, seen)
        if not await _news(listener):
            # Such a large difference is no lag: the server's versions have started again.
            listener.reset = listener.reset or seen > hub.version
            seen = max(seen, hub.version)
            yield format_sse_event(comment="ping", id=str(seen))


async def _news(listener: Listener) -> bool:
    """Wait for changes; False: there were none for PING_S."""
    try:
        async with asyncio.timeout(PING_S):
            await listener.wake.wait()
    except TimeoutError:
        return False
    return True


def _changed(topics: list[str], version: int) -> bytes:
    last = topics[-1]
    return b"".join(
        _event("changed", {"topic": topic, "version": version}, version if topic == last else None)
        for topic in topics
    )


def _event(name: str, data: dict[str, object], version: int | None) -> bytes:
    sent: bytes = format_sse_event(
        event=name, data_str=json.dumps(data), id=None if version is None else str(version)
    )
    return sent
