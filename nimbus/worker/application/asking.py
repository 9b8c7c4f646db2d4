"""Sends requests to the HTTP API of a cluster, and distinguishes "never sent" from "not answered".

`Kept` caches figures of a cluster, because each waiting driver reads them. Uses the standard library only.
Any thread.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

_ANSWER_S = 10.0
_LARGEST_ANSWER = 64 << 20
_KEPT_S = 10.0
_NOTHING_KEPT_S = 60.0
"""Longer for empty results, because a server that does not answer costs seconds."""

T = TypeVar("T")


class NotSentError(Exception):
    """No connection was made, so the request was not sent."""


class NoAnswerError(Exception):
    """The request was sent, and no valid answer came."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A server's response."""

    status: int
    said: Mapping[str, Any]
    """The JSON object; empty if the JSON is not an object."""


def ask(
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    verify: ssl.SSLContext | None = None,
) -> Answer:
    """Send one request; redirects are not followed.

    Raises:
        NotSentError: the request was not sent.
        NoAnswerError: the request may have been executed.
    """
    place = urlsplit(url)
    connection = (
        HTTPSConnection(place.hostname or "", place.port, timeout=_ANSWER_S, context=verify)
        if place.scheme == "https"
        else HTTPConnection(place.hostname or "", place.port, timeout=_ANSWER_S)
    )
    try:
        try:
            connection.connect()
        except OSError as exc:
            raise NotSentError(str(exc)) from exc
        try:
            connection.request(method, place._replace(scheme="", netloc="").geturl(), body, dict(headers))
            response = connection.getresponse()
            data = response.read(_LARGEST_ANSWER)
        except (OSError, HTTPException) as exc:
            raise NoAnswerError(f"{type(exc).__name__}: {exc}") from exc
        except ValueError:  # before the request is sent; the original error would show the token
            raise NotSentError("the token has a character that no header can have") from None
    finally:
        connection.close()
    try:
        said = json.loads(data)
    except ValueError as exc:
        raise NoAnswerError(f"status {response.status} without JSON") from exc
    return Answer(response.status, said if isinstance(said, dict) else {})


class Kept(Generic[T]):
    """A cached result of `read`, at most ten seconds old, or a minute if it is empty. Any thread."""

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._until_s = float("-inf")
        self._value: T

    def value(self) -> T:
        """Return the result, read again if it is old. Raises the errors of `read`, which are not cached."""
        with self._lock:
            if time.monotonic() >= self._until_s:
                self._value = self._read()
                self._until_s = time.monotonic() + (_KEPT_S if self._value else _NOTHING_KEPT_S)
            return self._value
