"""The port to the manager of a Spark cluster: submit, find, check and kill drivers; and its HTTP requests."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from nimbus.domain.errors import NimbusError

_ANSWER_S = 10.0
_MAX_ANSWER_BYTES = 64 << 20
_CACHED_S = 10.0
_EMPTY_CACHED_S = 60.0
"""Longer for empty results, because a server that does not answer costs seconds."""

T = TypeVar("T")


class ClusterUnreachableError(NimbusError):
    """The manager did not accept the request, so nothing was submitted or killed."""

    code = "cluster_unreachable"
    retryable = True


class SubmissionUnknownError(NimbusError):
    """The request was sent without an answer: the driver may have been submitted, or may be later."""

    code = "submission_unknown"


class SubmissionRefusedError(NimbusError):
    """The manager refused the driver."""

    code = "submission_refused"


class DriverState(Enum):
    """The manager's state of a driver. It does not show success: only END does."""

    WAITING = "waiting"
    RUNNING = "running"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DriverStatus:
    """A driver's state, and the manager's words; of a waiting one also how full the cluster is, if known."""

    state: DriverState
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request to start a driver."""

    name: str
    """The attempt's tag, which is also the application's name."""
    bootstrap_url: str
    startup: str
    """The bootstrap's document, for its environment. It has no dollar sign, which clusters expand."""
    conf: Mapping[str, str]
    environment: Mapping[str, str]


class ClusterManager(Protocol):
    """One cluster. One thread submits, another one makes all other calls; every call has a timeout."""

    def submit(self, submission: Submission) -> str:
        """Submit a driver once; return the manager's id for it.

        Raises:
            ClusterUnreachableError: nothing was submitted.
            SubmissionRefusedError: nothing was submitted, and a retry would fail again.
            SubmissionUnknownError: it may have been submitted.
        """

    def find(self, name: str) -> str | None:
        """The living driver that was submitted with a name; None: none. Raises ClusterUnreachableError."""

    def probe(self, driver: str) -> DriverStatus:
        """Check a driver. Never raises: the state is `UNKNOWN` if it cannot be read."""

    def kill(self, driver: str) -> None:
        """Request a driver's end, which `probe` shows. Safe to repeat. Raises ClusterUnreachableError."""


class NotSentError(Exception):
    """No connection was made, so the request was not sent."""


class NoAnswerError(Exception):
    """The request was sent, and no valid answer came."""


@dataclass(frozen=True, slots=True)
class Response:
    """A server's response; `said` is empty if the JSON is not an object."""

    status: int
    said: Mapping[str, Any]


def ask(
    method: str,
    url: str,
    body: bytes | None = None,
    *,
    token: Callable[[], str | None] = lambda: None,
    verify: ssl.SSLContext | None = None,
) -> Response:
    """Send one request with a JSON `body`; redirects are not followed. `token` raises NimbusError.

    Raises:
        NotSentError: the request was not sent.
        NoAnswerError: the request may have been executed.
    """
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    try:
        if (bearer := token()) is not None:
            headers["Authorization"] = f"Bearer {bearer}"
    except NimbusError as exc:
        raise NotSentError(str(exc)) from exc
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
            connection.request(method, place._replace(scheme="", netloc="").geturl(), body, headers)
            response = connection.getresponse()
            data = response.read(_MAX_ANSWER_BYTES)
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
    return Response(response.status, said if isinstance(said, dict) else {})


class Cached(Generic[T]):
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
                self._until_s = time.monotonic() + (_CACHED_S if self._value else _EMPTY_CACHED_S)
            return self._value
