"""Asks the HTTP API of a cluster in two steps: what was never sent differs from what was not answered.

The standard library alone. Any thread.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

_ANSWER_S = 10.0
_LARGEST_ANSWER = 64 << 20


class NotSentError(Exception):
    """No connection was made, so nothing was asked."""


class NoAnswerError(Exception):
    """It was asked, and did not answer."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Of a server."""

    status: int
    said: Mapping[str, Any]
    """Empty: it said JSON, but no object."""


def ask(
    method: str,
    url: str,
    body: bytes | None,
    headers: Mapping[str, str],
    verify: ssl.SSLContext | None = None,
) -> Answer:
    """Ask once; redirects are not followed.

    Raises:
        NotSentError: nothing was asked.
        NoAnswerError: it may have been done.
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
        except ValueError:  # of the request, before it is sent; the error would show the token
            raise NotSentError("the token has a character that no header can have") from None
    finally:
        connection.close()
    try:
        said = json.loads(data)
    except ValueError as exc:
        raise NoAnswerError(f"status {response.status} without JSON") from exc
    return Answer(response.status, said if isinstance(said, dict) else {})
