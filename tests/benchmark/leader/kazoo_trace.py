"""Records when each request is sent and answered, and when its caller continues. It wraps methods of kazoo.

Only for the profile of a hand-over; the comparison runs without it. Each note costs a few microseconds.
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
    """Notes of this process: time, and a text that is the same in each round. Any thread may add notes."""

    def __init__(self) -> None:
        self._notes: list[Note] = []

    def note(self, words: str) -> None:
        self._notes.append((now_ns(), f"{words}  [{_thread()}]"))

    def taken(self) -> list[Note]:
        """All notes since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def install(self) -> None:
        """Wrap the methods of kazoo that handle every request."""
        before(KazooClient, "_call", lambda _self, request, *_: self.note(f"submit {_said(request)}"))
        before(ConnectionHandler, "_submit", self._sent)
        before(ConnectionHandler, "_read_response", self._answered)
        before(ConnectionHandler, "_read_watch_event", self._watched)
        _after(AsyncResult, "get", lambda *_: self.note("caller has the answer"))

    def _sent(self, _handler: ConnectionHandler, request: Any, *_: Any) -> None:
        if request.type not in (None, 11):  # no pings
            self.note(f"sent {_said(request)}")

    def _answered(self, handler: ConnectionHandler, *_: Any) -> None:
        self.note(f"answer to {_said(handler.client._pending[0][0])}")

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
    """A path without the parts that differ from round to round."""
    return _UNIQUE.sub("*", path)


def _thread() -> str:
    return re.sub(r"\d+", "", threading.current_thread().name)


def before(owner: type, name: str, first: Callable[..., None]) -> None:
    """Wrap a method of `owner` so that it calls `first` at its start."""
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
