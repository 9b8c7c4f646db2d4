"""A driver's connection to the attempt board, from inside a cluster: a scheduler's gateway, over HTTP."""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar

_ANSWER_S = 20.0
_FETCH_PATIENCE_S = 600.0
_LONGEST_PAUSE_S = 10.0
_DETAIL = 500
T = TypeVar("T")


class GatewayRefusedError(Exception):
    """A scheduler refused the request; a retry would fail again."""


class GatewayUnreachableError(Exception):
    """No scheduler answered in time."""


class Gateway:
    """Asks schedulers until one answers: first that of the last answer, then the submission's. Any thread."""

    def __init__(self, startup: Mapping[str, Any]) -> None:
        self._submitted_with = self._endpoints = tuple(startup["endpoints"])
        self._path = f"/attempt/v1/{startup['attempt']}"
        self._query = f"pipeline={startup['pipeline']}&release={startup['release']}"
        self._token = startup["token"]
        self._pause = threading.Event()

    def post(self, what: str, said: Mapping[str, Any], patience_s: float) -> dict[str, Any]:
        """Post a JSON document about the attempt; return the answer. Raises as `_ask_all`."""
        answer = self._ask_all(what, json.dumps(said).encode(), patience_s, "", as_object)
        named = answer.get("schedulers")
        if isinstance(named, list):
            self.learn(map(str, named))
        return answer

    @property
    def endpoints(self) -> Sequence[str]:
        """Base URLs of the known schedulers."""
        return self._endpoints

    def learn(self, named: Iterable[str]) -> None:
        """Add these schedulers."""
        known = (*self._endpoints[:1], *self._submitted_with, *named)
        self._endpoints = tuple(dict.fromkeys(known))

    def send(self, what: str, data: bytes, query: str) -> dict[str, Any]:
        """Send bytes; return the answer. Raises as `_ask_all`."""
        return self._ask_all(what, data, _ANSWER_S, query, as_object)

    def fetch(self, what: str, place: Path) -> str:
        """Download a file; return its SHA-256. Raises as `_ask_all`."""

        def take(answer: Any) -> str:
            digest = hashlib.sha256()
            with place.open("wb") as file:
                while piece := answer.read(1 << 20):
                    digest.update(piece)
                    file.write(piece)
            return digest.hexdigest()

        return self._ask_all(what, None, _FETCH_PATIENCE_S, "", take)

    def _ask_all(
        self, what: str, data: bytes | None, patience_s: float, query: str, take: Callable[[Any], T]
    ) -> T:
        """Retry until an answer is complete. An endpoint that is not a scheduler any more is skipped.

        Raises:
            GatewayRefusedError: the request is too large or malformed; or, for `patience_s`, no scheduler saw
                the claim, which one that lags behind does not.
            GatewayUnreachableError: no scheduler answered within `patience_s`.
        """
        until_s, pause_s, last = time.monotonic() + patience_s, 0.2, "none is known"
        while True:
            no_claim = ""
            for endpoint in self._endpoints:
                try:
                    url = f"{endpoint}{self._path}/{what}?{self._query}{query}"
                    with self._open(url, data) as answer:
                        taken = take(answer)
                except urllib.error.HTTPError as exc:
                    said = f"{exc.code}: {_detail(exc)}"
                    if exc.code in (413, 422):
                        raise GatewayRefusedError(f"{what}: {said}") from exc
                    last = f"{endpoint} says {said}"
                    if exc.code == 409:
                        no_claim = f"{what}: {said}"
                except (OSError, HTTPException, ValueError) as exc:
                    last = f"{endpoint}: {exc}"
                else:
                    self._endpoints = tuple(dict.fromkeys((endpoint, *self._endpoints)))
                    return taken
            if time.monotonic() + pause_s > until_s:
                if no_claim:
                    raise GatewayRefusedError(no_claim)
                raise GatewayUnreachableError(f"{what}: no scheduler answered: {last}"[:400])
            self._pause.wait(pause_s * (0.5 + secrets.randbelow(1000) / 1000))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _open(self, url: str, data: bytes | None) -> Any:
        request = urllib.request.Request(url, data=data)  # noqa: S310 - the worker's own endpoints
        request.add_header("Authorization", f"Bearer {self._token}")
        kind = "application/octet-stream" if "/log?" in url else "application/json"
        request.add_header("Content-Type", kind)
        return urllib.request.urlopen(request, timeout=_ANSWER_S)  # noqa: S310 - as above


def as_object(answer: Any) -> dict[str, Any]:
    """Read a JSON object. Raises ValueError, OSError."""
    document = json.load(answer)
    if not isinstance(document, dict):
        raise ValueError("the answer is no object")  # noqa: TRY004 - as of a broken answer
    return document


def _detail(error: urllib.error.HTTPError) -> str:
    try:
        return str(as_object(error).get("detail", ""))[:_DETAIL]
    except (OSError, HTTPException, ValueError):
        return error.reason
