"""Requests to the schedulers' API. Any scheduler can answer, so each is tried repeatedly for a while."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote
from uuid import uuid4

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_before_delay, wait_random_exponential

from nimbus.client.errors import KINDS, ClientError, ProblemError, UnreachableError
from nimbus.client.servers import credentials

PREFIX = "/api/v1"
Path = str | tuple[str, ...]
"""Below `/api/v1`: a text such as `/runs`, or parts that are quoted, such as `("runs", run_id)`."""
PATIENCE_S = 15.0
"""How long a request is tried again without an answer: longer than a takeover takes."""
DECISION_PATIENCE_S = 60.0
"""How long a command waits for the leader's decision: a release may have to be fetched first."""
REASON_VARIABLE = "NIMBUS_REASON"
"""The environment variable with the reason that is kept with each command."""
_PAGE = 500
"""Most rows in one response."""
_WAIT_S = 10
"""How long the server may hold one request that waits for a decision."""
_LEARN_EVERY_S = 60.0


class Api:
    """Sends requests to any of the schedulers; threads may share it.

    Args:
        servers: Base URLs; the one that answered last is tried first. The others of the cluster are learnt.
        patience_s: How long to keep trying when none answers.
        token: Sent to all of them; None: NIMBUS_TOKEN, NIMBUS_TOKEN_FILE, or the stored token of each.
        learn_after_s: Age at which it begins to ask for other schedulers: short commands need none.
    """

    def __init__(
        self,
        servers: Sequence[str],
        *,
        patience_s: float = PATIENCE_S,
        token: str | None = None,
        learn_after_s: float = 1.0,
    ) -> None:
        self._servers, self._token = list(servers), token
        self._named_by: dict[str, str] = {}
        """By the URL of a scheduler that was learnt: the one whose token it gets if it has none."""
        self.patience_s = patience_s
        self._learn_at = time.monotonic() + learn_after_s
        self._http = httpx.Client(
            headers=_headers(),
            timeout=httpx.Timeout(10.0, connect=2.0, read=_WAIT_S + 10.0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def get(self, path: Path, **query: Any) -> Any:
        """Read a JSON document below `/api/v1`. ProblemError, UnreachableError."""
        return self.fetch(path, **query).json()

    def listed(self, path: Path, name: str, limit: int, **query: Any) -> dict[str, Any]:
        """Read the first `limit` rows of a list, page by page; `name` is their key. Errors as `get`."""
        answer: dict[str, Any] = self.get(path, limit=min(limit, _PAGE), **query)
        rows = answer[name]
        while (cursor := answer.get("next_cursor")) and len(rows) < limit:
            page = self.get(path, limit=min(limit - len(rows), _PAGE), cursor=cursor, **query)
            rows = [*rows, *page[name]]
            answer = {**page, name: rows}
        return answer

    def fetch(self, path: Path, **query: Any) -> httpx.Response:
        """Read any content; returns the response with its headers. ProblemError, UnreachableError."""
        wanted = {key: value for key, value in query.items() if value is not None}
        return self._ask("GET", path, params=wanted)

    def download(self, path: Path, query: Mapping[str, str], into: Callable[[bytes], object]) -> None:
        """Read any content, piece by piece, from the server that answered last.

        Raises:
            ProblemError: refused.
            UnreachableError: no answer, or it broke off.
        """
        server = self._servers[0]
        try:
            with self._http.stream(
                "GET", f"{server}{PREFIX}{_text(path)}", params=query, headers=self._credentials(server)
            ) as response:
                if not response.is_success:
                    response.read()
                    raise _refusal(response, server)
                for piece in response.iter_bytes():
                    into(piece)
        except httpx.TransportError as exc:
            raise UnreachableError({server: str(exc) or type(exc).__name__}) from exc

    def post(self, path: Path, body: Mapping[str, Any]) -> Any:
        """Send a query that needs a body and changes nothing. ProblemError, UnreachableError."""
        return self._ask("POST", path, json=dict(body)).json()

    def command(
        self,
        method: str,
        path: Path,
        body: Mapping[str, Any] | None = None,
        *,
        decided: bool = True,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Submit a command, once however often it is sent, and wait for the leader's decision.

        Args:
            method: `POST`, `PUT` or `DELETE`.
            path: Below `/api/v1`.
            body: JSON.
            decided: Wait for the decision while there is a leader.
            key: The `Idempotency-Key`; None: a new one for this call.

        Returns:
            The API's `CommandModel`; its `status` is `pending` without a decision in time.

        Raises:
            ProblemError: refused, by a scheduler or by the leader.
            UnreachableError: no scheduler answered. If one has accepted it unseen, it is carried out.
        """
        until = time.monotonic() + (DECISION_PATIENCE_S if decided else 0)
        request: dict[str, Any] = {
            "params": {"wait": _WAIT_S if decided else 0},
            "json": None if body is None else dict(body),
            "headers": {"Idempotency-Key": key or uuid4().hex},
        }
        while True:  # with the same key, so that a late refusal is the same answer as one in time
            answer: dict[str, Any] = self._ask(method, path, **request).json()
            if answer["status"] != "pending" or time.monotonic() >= until or self.leader() is None:
                return answer

    def leader(self) -> dict[str, Any] | None:
        """Return the confirmed leader; None if there is none."""
        row: dict[str, Any] | None = self.get("/leader")["leader"]
        return row

    def _ask(
        self, method: str, path: Path, *, patience_s: float | None = None, **request: Any
    ) -> httpx.Response:
        retrying = Retrying(
            retry=retry_if_exception(lambda exc: isinstance(exc, ClientError) and exc.retryable),
            wait=_pause_s,
            stop=stop_before_delay(self.patience_s if patience_s is None else patience_s),
            reraise=True,
        )
        answer: httpx.Response = retrying(self._round, method, path, request)
        if time.monotonic() >= self._learn_at:
            self._learn_at = time.monotonic() + _LEARN_EVERY_S
            self._learn()
        return answer

    def _round(self, method: str, path: Path, request: Mapping[str, Any]) -> httpx.Response:
        """Try each scheduler once, until one answers."""
        tried: dict[str, str] = {}
        retry_after_s = 0.0
        for server in tuple(self._servers):
            headers = {**request.get("headers", {}), **self._credentials(server)}
            try:
                response = self._http.request(
                    method, f"{server}{PREFIX}{_text(path)}", **{**request, "headers": headers}
                )
            except httpx.TransportError as exc:
                tried[server] = str(exc) or type(exc).__name__
                continue
            if not response.is_success:
                refused = _refusal(response, server)
                if isinstance(refused, ProblemError):
                    raise refused
                tried |= refused.tried
                retry_after_s = max(retry_after_s, refused.retry_after_s)
                continue
            self._servers = [server, *(other for other in self._servers if other != server)]
            return response
        raise UnreachableError(tried, retry_after_s)

    def _learn(self) -> None:
        """Ask the scheduler that answered last for the others, which are tried when the known ones fail.

        An address without TLS is not taken from one with TLS: the token would be readable on the way.
        """
        named_by = self._servers[0]
        try:
            rows = self._round("GET", "/participants", {}).json()["participants"]
        except ClientError:
            return
        secure = named_by.startswith("https:")
        for url in (str(row["address"]).rstrip("/") for row in rows if row.get("address")):
            if url.startswith("https:" if secure else "http") and url not in self._servers:
                self._named_by[url] = named_by
                self._servers = [*self._servers, url]

    def _credentials(self, server: str) -> dict[str, str]:
        """The token for a scheduler; one that was learnt gets that of the scheduler that named it."""
        token = credentials(server, self._token)
        named_by = self._named_by.get(server)
        return token if token or named_by is None else credentials(named_by, self._token)


def _pause_s(state: RetryCallState) -> float:
    """Random and growing, and at least what the schedulers have asked for."""
    exc = None if state.outcome is None else state.outcome.exception()
    least = exc.retry_after_s if isinstance(exc, UnreachableError | ProblemError) else 0.0
    return max(least, wait_random_exponential(multiplier=0.2, max=2.0)(state))


def _text(path: Path) -> str:
    return path if isinstance(path, str) else "".join(f"/{quote(part, safe='')}" for part in path)


def _headers() -> dict[str, str]:
    reason = _printable(os.environ.get(REASON_VARIABLE, ""))[:500]
    return {"X-Nimbus-User": local_user()} | ({"X-Nimbus-Reason": reason} if reason else {})


def local_user() -> str:
    """The name of the user who runs this process, encoded for a header."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in some containers
        name = f"uid {os.getuid()}"
    return _printable(name).replace(" ", "?")[:100] or "?"


def _printable(text: str) -> str:
    return "".join(char if " " <= char <= "~" else "?" for char in text)


def _refusal(response: httpx.Response, server: str) -> ProblemError | UnreachableError:
    """The error of an answer that is no success, also of one that a proxy sent."""
    after = response.headers.get("Retry-After", "")
    retry_after_s = float(after) if after.isdecimal() else 0.0
    try:
        document = response.json()
        code, detail, errors = str(document["code"]), str(document["detail"]), document.get("errors") or ()
    except (ValueError, KeyError, TypeError):
        where = f"{response.request.method} {response.request.url}"
        code, errors = "http", ()
        detail = f"{where} was answered with status {response.status_code}, and no reason"
    if response.status_code in (502, 503, 504):
        return UnreachableError({server: detail}, retry_after_s)
    kind = KINDS.get(response.status_code, ProblemError)
    return kind(response.status_code, code, detail, errors, retry_after_s)
