"""Notes when each request leaves, is answered and is heard of, by standing in for parts of kazoo.

For the profile of a hand-over alone: the comparison runs without it. Costs a few microseconds for each note.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.handlers.utils import AsyncResult
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Watch

from tests.benchmark.leader.clock import now_ns

Note = tuple[int, str]
_UNIQUE = re.compile(r"(_c_)?[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}|\d+")
_WATCHES = {1: "created", 2: "deleted", 3: "changed", 4: "children"}


class Trace:
    """Notes of this process: the moment, and words that are the same in each round. Any thread."""

    def __init__(self) -> None:
        self._notes: list[Note] = []

    def note(self, words: str) -> None:
        self._notes.append((now_ns(), f"{words}  [{_thread()}]"))

    def taken(self) -> list[Note]:
        """All notes since the last time."""
        notes, self._notes = self._notes, []
        return notes

    def install(self) -> None:
        """Stand in for the parts of kazoo that every request passes."""
        before(KazooClient, "_call", lambda _self, request, *_: self.note(f"submit {_said(request)}"))
        before(ConnectionHandler, "_submit", self._sent)
        before(ConnectionHandler, "_read_response", self._answered)
        before(ConnectionHandler, "_read_watch_event", self._watched)
        _after(AsyncResult, "get", lambda *_: self.note("answer heard"))

    def _sent(self, _handler: ConnectionHandler, request: Any, *_: Any) -> None:
        if request.type not in (None, 11):  # pings
            self.note(f"sent {_said(request)}")

    def _answered(self, handler: ConnectionHandler, *_: Any) -> None:
        self.note(f"answer came to {_said(handler.client._pending[0][0])}")

    def _watched(self, _handler: ConnectionHandler, buffer: Any, offset: int) -> None:
        watch, _ = Watch.deserialize(buffer, offset)
        self.note(f"watch fired: {_WATCHES.get(watch.type, watch.type)} {general(watch.path)}")


def _said(request: Any) -> str:
    parts = getattr(request, "operations", None)
    name = type(request).__name__
    if parts is not None:
        return f"{name}({', '.join(_said(part) for part in parts)})"
    return f"{name} {general(getattr(request, 'path', '') or '')}"


def general(path: str) -> str:
    """A path without what differs from round to round."""
    return _UNIQUE.sub("*", path)


def _thread() -> str:
    return re.sub(r"\d+", "", threading.current_thread().name)


def before(owner: type, name: str, first: Callable[..., None]) -> None:
    """Let a method of `owner` begin with `first`."""
    original = getattr(owner, name)

    def instead(self: Any, *args: Any, **kw: Any) -> Any:
        first(self, *args)
        return original(self, *args, **kw)

    setattr(owner, name, instead)


def _after(owner: type, name: str, then: Callable[..., None]) -> None:
    original = getattr(owner, name)

    def instead(self: Any, *args: Any, **kw: Any) -> Any:
        try:
            return original(self, *args, **kw)
        finally:
            then(self, *args)

    setattr(owner, name, instead)
