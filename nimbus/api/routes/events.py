"""The stream of events, which sends changes so that pages need not poll.

The hub runs on the server's event loop, except for the calls of the feed. Without streams, the feed is not
followed. One task follows the feed for all streams, and one AnyIO thread makes its calls. A stream has
neither its own thread nor its own watch.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, TypeVar

import structlog
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Query, Request
from fastapi.sse import format_sse_event
from pydantic import StringConstraints
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from nimbus.access.gate import AccessGate
from nimbus.api.caller import grants, principal
from nimbus.api.problems import TooManyStreamsError
from nimbus.domain.cluster.topics import PATTERN
from nimbus.ports import ChangeFeed, LiveChanges, StoreUnavailableError

T = TypeVar("T")
MAX_STREAMS = 500
MAX_OF_ONE = 20
"""Limit of streams of one caller."""
MAX_KNOWN_TOPICS = 10_000
"""Limit of topics whose last changes are kept."""
PACE_S = 0.25
"""Pause between two reads of the feed, so that no topic is sent more often."""
BEATS_S = 5.0
"""Pause between two reads that include heartbeats."""
LINGER_S = 60.0
"""How long the feed is followed after the last stream has ended: the next page then needs no reset."""
START_S = 30.0
_RETRY_S = 1.0
_log = structlog.stdlib.get_logger(__name__)


class LastChanges:
    """The last changes of topics since a version. Older changes are not known."""

    def __init__(self, since: int, most: int = MAX_KNOWN_TOPICS) -> None:
        self._since, self._most = since, most
        self._versions = OrderedDict[str, int]()

    def note(self, topics: Collection[str], version: int) -> None:
        """Record that topics have changed, no later than `version`."""
        for topic in topics:
            self._versions[topic] = version
            self._versions.move_to_end(topic)
        while len(self._versions) > self._most:
            _, self._since = self._versions.popitem(last=False)

    def after(self, version: int, topics: Collection[str]) -> set[str] | None:
        """Those of `topics` that have changed after `version`; None: not known."""
        if version < self._since:
            return None
        return {topic for topic in topics if self._versions.get(topic, 0) > version}


@dataclass(eq=False, slots=True)
class Listener:
    """One stream."""

    topics: frozenset[str]
    who: str
    changed: set[str] = field(default_factory=set)
    """Changed topics that are not sent yet."""
    reset: bool = False
    """True when changes may have been missed."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    ended: bool = False


class EventHub:
    """Distributes the changes of one feed to all streams."""

    def __init__(self, feed: ChangeFeed, *, pace_s: float = PACE_S, linger_s: float = LINGER_S) -> None:
        self._feed, self._pace_s, self._linger_s = feed, pace_s, linger_s
        self._listeners: set[Listener] = set()
        self._streams_of: Counter[str] = Counter()
        self._following: asyncio.Task[None] | None = None
        self._live: asyncio.Future[None] | None = None
        self._last = LastChanges(0)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = CapacityLimiter(1)
        self.version = 0
        """Every change up to this version was sent."""

    @property
    def streams(self) -> int:
        """Number of open streams. Any thread."""
        return len(self._listeners)

    async def join(self, topics: Collection[str], since: int | None, who: str) -> Listener:
        """Open a stream. `since`: the version that the caller has seen; None: the current one.

        Raises TooManyStreamsError; StoreUnavailableError: changes cannot be followed now.
        """
        if len(self._listeners) >= MAX_STREAMS or self._streams_of[who] >= MAX_OF_ONE:
            raise TooManyStreamsError(
                f"there may be {MAX_OF_ONE} streams of one caller, and {MAX_STREAMS} of all: close some."
            )
        listener = Listener(frozenset(topics), who)
        self._listeners.add(listener)
        self._streams_of[who] += 1
        try:
            async with asyncio.timeout(START_S):
                await asyncio.shield(self._followed())
        except BaseException as exc:
            self.leave(listener)
            if isinstance(exc, TimeoutError):
                raise StoreUnavailableError("changes cannot be followed now.") from exc
            raise
        missed = set[str]() if since is None else self._last.after(since, listener.topics)
        listener.reset = missed is None
        listener.changed |= missed or set()
        return listener

    def leave(self, listener: Listener) -> None:
        """End a stream."""
        self._listeners.discard(listener)
        self._streams_of[listener.who] -= 1
        self._streams_of += Counter()  # removes callers without streams

    def close(self) -> None:
        """End all streams, because the server stops. Any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        for listener in self._listeners:
            listener.ended = True
            listener.wake.set()
        if self._following is not None:
            self._following.cancel()

    def _followed(self) -> asyncio.Future[None]:
        """Follow the feed, if it is not followed yet. The future is done when changes are being sent."""
        if self._live is None or self._following is None or self._following.done():
            self._loop = asyncio.get_running_loop()
            self._live = self._loop.create_future()
            self._following = asyncio.create_task(self._follow(self._live))
        return self._live

    async def _follow(self, live: asyncio.Future[None]) -> None:
        loop, news = asyncio.get_running_loop(), asyncio.Event()

        def told() -> None:
            with suppress(RuntimeError):  # the server has stopped, and its loop is closed
                loop.call_soon_threadsafe(news.set)

        try:
            await self._call(partial(self._feed.start, told))
            await self._look(beats=True)
            live.set_result(None)
            await self._look_on(news)
        except StoreUnavailableError as exc:
            _log.warning("changes_not_followed", error=str(exc))
            live.set_exception(exc)
            live.exception()  # its client may have disconnected
        finally:
            live.cancel()
            self._feed.stop()

    async def _look_on(self, news: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        looked_at = beats_at = used_at = loop.time()
        while self._listeners or loop.time() < used_at + self._linger_s:
            used_at = loop.time() if self._listeners else used_at
            with suppress(TimeoutError):
                async with asyncio.timeout(BEATS_S):
                    await news.wait()
            await asyncio.sleep(looked_at + self._pace_s - loop.time())
            news.clear()
            looked_at = loop.time()
            beats = looked_at >= beats_at
            try:
                await self._look(beats=beats)
            except StoreUnavailableError as exc:
                _log.warning("changes_not_followed", error=str(exc))
                await asyncio.sleep(_RETRY_S)
                continue
            beats_at = looked_at + BEATS_S if beats else beats_at

    async def _look(self, *, beats: bool) -> None:
        changes = await self._call(partial(self._feed.take, beats=beats))
        if changes.lost:
            self._last = LastChanges(changes.version)
        self._last.note(changes.topics, changes.upto)
        self.version = changes.version
        self._tell(changes)

    def _tell(self, changes: LiveChanges) -> None:
        if not changes.topics and not changes.lost:
            return
        for listener in self._listeners:
            news = changes.topics & listener.topics
            if changes.lost or news:
                listener.changed |= news
                listener.reset |= changes.lost
                listener.wake.set()

    async def _call(self, call: Callable[[], T]) -> T:
        return await run_sync(call, limiter=self._threads)


MAX_TOPICS = 20
PING_S = 15.0
RETRY_MS = 2000
MEDIA_TYPE = "text/event-stream"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_Topic = Annotated[str, StringConstraints(pattern=f"^{PATTERN.pattern}$", max_length=140)]
_Version = Annotated[int, Query(ge=0, lt=1 << 63)]


def router(hub: EventHub, gate: AccessGate, prefix: str) -> APIRouter:
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
        topic: Annotated[list[_Topic], Query(min_length=1, max_length=MAX_TOPICS)],
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
        if not await _changes_came(listener):
            # Such a large difference is no lag: the server's versions have started again.
            listener.reset = listener.reset or seen > hub.version
            seen = max(seen, hub.version)
            yield format_sse_event(comment="ping", id=str(seen))


async def _changes_came(listener: Listener) -> bool:
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
