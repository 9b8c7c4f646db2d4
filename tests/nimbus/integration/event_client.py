"""Reads a stream of events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx


@dataclass
class EventClient:
    """One stream, read like a browser. A new stream can continue after `last_id`."""

    lines: Iterator[str]
    last_id: str = ""
    told: dict[str, int] = field(default_factory=dict)
    """The last version of each topic."""

    def next(self) -> tuple[str, dict[str, Any]]:
        """The next event with data, and its name."""
        name, data = "message", ""
        for line in self.lines:
            field_name, _, value = line.partition(": ")
            if field_name == "event":
                name = value
            elif field_name == "data":
                data = value
            elif field_name == "id":
                self.last_id = value
            elif line == "" and data:
                return name, self._noted(json.loads(data))
        raise EOFError

    def until(self, topic: str) -> dict[str, Any]:
        """Read until `topic` has changed."""
        while (event := self.next()) and event[1].get("topic") != topic:
            pass
        return event[1]

    def _noted(self, data: dict[str, Any]) -> dict[str, Any]:
        if "topic" in data:
            self.told[data["topic"]] = data["version"]
        return data


@contextmanager
def streaming(
    url: str,
    *topics: str,
    since: int | None = None,
    last_id: str = "",
    address: str = "127.0.0.1",
    token: str = "",
) -> Iterator[EventClient]:
    """Open a stream, and wait for its first lines."""
    query: list[tuple[str, str | int | float | bool | None]] = [("topic", topic) for topic in topics]
    if since is not None:
        query.append(("since", since))
    headers = {"Last-Event-ID": last_id} if last_id else {}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    transport = httpx.HTTPTransport(local_address=address)
    with (
        httpx.Client(transport=transport, timeout=120) as http,
        http.stream("GET", f"{url}/api/v1/events", params=query, headers=headers) as answer,
    ):
        if answer.is_error:
            answer.read()
        answer.raise_for_status()
        client = EventClient(answer.iter_lines())
        for line in client.lines:  # up to the end of the first event, which has no data
            if line.startswith("id: "):
                client.last_id = line.removeprefix("id: ")
            if not line:
                break
        yield client
