"""Client of the schedulers' API. Any scheduler can answer, so each is tried repeatedly for a while."""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from nimbus.cli.credentials import credentials
from nimbus.cli.exits import CliError, Exit, of_status

PREFIX = "/api/v1"
PATIENCE_S = 15.0
"""How long a command keeps trying without an answer: longer than a takeover takes."""
DECISION_PATIENCE_S = 60.0
"""How long a command waits for the leader's decision: a release may have to be fetched first."""
REASON_VARIABLE = "NIMBUS_REASON"
"""The environment variable with the reason that is kept with each command."""
_CERTIFICATE = {
    "has expired": "Renew the certificate of that scheduler (`api.tls`), or correct this host's clock.",
    "not yet valid": "Correct the clock of this host, or the certificate of that scheduler (`api.tls`).",
    "mismatch": "Use a name or address for which the certificate is, or renew it with this one.",
}
"""Advice by OpenSSL's reason."""
_UNKNOWN_AUTHORITY = "Name a file with the authority of its certificate in SSL_CERT_FILE."
_PAGE = 500
"""Most rows in one response."""
_WAIT_S = 10
"""How long the server may hold one request that waits for a decision."""


class UnreachableError(CliError):
    """No scheduler gave a usable answer."""

    def __init__(self, tried: Mapping[str, str]) -> None:
        lines = "".join(f"\n  {server}: {why}" for server, why in tried.items())
        advice = "Is the cluster up, and is --server (or NIMBUS_SERVER) right?"
        if any("CERTIFICATE_VERIFY_FAILED" in why for why in tried.values()):
            advice = next((fix for text, fix in _CERTIFICATE.items() if text in lines), _UNKNOWN_AUTHORITY)
        elif any("disconnected without" in why and url.startswith("http:") for url, why in tried.items()):
            advice = "If it serves TLS, its URL begins with https."
        super().__init__(
            f"no scheduler answered:{lines}\n{advice}",
            code="unreachable",
            exit_code=Exit.UNREACHABLE,
        )


class ProblemError(CliError):
    """A scheduler refused a request, with a reason."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail, code=code, exit_code=of_status(status))
        self.status = status


class DoubtfulError(CliError):
    """It is unknown whether a request was executed, and it is not safe to repeat."""

    def __init__(self, server: str, why: str) -> None:
        super().__init__(
            f"{server} may or may not have accepted the command ({why}). Check before you repeat it.",
            code="in_doubt",
            exit_code=Exit.UNREACHABLE,
        )


class Api:
    """A client of all schedulers.

    Args:
        servers: Base URLs; the one that answered last is tried first.
        patience_s: How long to keep trying when none answers.
        token: Sent to all of them; None: the stored token of each.
    """

    def __init__(
        self, servers: Sequence[str], *, patience_s: float = PATIENCE_S, token: str | None = None
    ) -> None:
        self._servers, self._token = list(servers), token
        self.patience_s = patience_s
        self._http = httpx.Client(
            headers=_headers(),
            timeout=httpx.Timeout(10.0, connect=2.0, read=_WAIT_S + 10.0),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, **query: Any) -> Any:
        """Read a JSON document. ProblemError, UnreachableError."""
        return self.fetch(path, **query).json()

    def listed(self, path: str, name: str, limit: int, **query: Any) -> dict[str, Any]:
        """Read the first `limit` rows of a list, page by page; `name` is their key. Errors as `get`."""
        answer: dict[str, Any] = self.get(path, limit=min(limit, _PAGE), **query)
        rows = answer[name]
        while (cursor := answer.get("next_cursor")) and len(rows) < limit:
            page = self.get(path, limit=min(limit - len(rows), _PAGE), cursor=cursor, **query)
            rows = [*rows, *page[name]]
            answer = {**page, name: rows}
        return answer

    def fetch(self, path: str, **query: Any) -> httpx.Response:
        """Read any content; returns the response with its headers. ProblemError, UnreachableError."""
        wanted = {key: value for key, value in query.items() if value is not None}
        return self._ask("GET", path, repeatable=True, params=wanted)

    def download(self, path: str, query: Mapping[str, str], into: Callable[[bytes], object]) -> None:
        """Read any content, piece by piece, from the server that answered last.

        Raises:
            ProblemError: refused.
            UnreachableError: no answer, or it broke off.
        """
        server = self._servers[0]
        try:
            with self._http.stream(
                "GET", f"{server}{PREFIX}{path}", params=query, headers=credentials(server, self._token)
            ) as response:
                if not response.is_success:
                    response.read()
                    raise ProblemError(response.status_code, *_detail(response))
                for piece in response.iter_bytes():
                    into(piece)
        except httpx.TransportError as exc:
            raise UnreachableError({server: str(exc) or type(exc).__name__}) from exc

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a query that needs a body and changes nothing. ProblemError, UnreachableError."""
        return self._ask("POST", path, repeatable=True, json=dict(body)).json()

    def command(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        repeatable: bool = True,
        decided: bool = True,
        key: str | None = None,
    ) -> dict[str, Any]:
        """Submit a command and wait for the leader's decision.

        Args:
            method: `POST`, `PUT` or `DELETE`.
            path: Below `/api/v1`.
            body: JSON.
            decided: Wait for the decision.
            key: The `Idempotency-Key`; None: without one.
            repeatable: It is safe to repeat, so it is sent again if the outcome is unknown.

        Returns:
            The API's `CommandModel`; its `status` is `pending` without a decision in time.

        Raises:
            ProblemError: refused.
            UnreachableError: no scheduler accepted it.
            DoubtfulError: not repeatable, and the connection broke after it was sent.
        """
        until = time.monotonic() + (DECISION_PATIENCE_S if decided else 0)
        json = None if body is None else dict(body)
        answer: dict[str, Any] = self._ask(
            method,
            path,
            repeatable=repeatable,
            params={"wait": _WAIT_S if decided else 0},
            json=json,
            headers={} if key is None else {"Idempotency-Key": key},
        ).json()
        while answer["status"] == "pending" and time.monotonic() < until and self.leader() is not None:
            run_id = answer.get("run_id")
            answer = self.get(f"/commands/{answer['command_id']}", wait=_WAIT_S) | {"run_id": run_id}
        if answer["status"] == "refused":
            raise ProblemError(409, answer["outcome"]["code"], answer["outcome"]["message"])
        return answer

    def leader(self) -> dict[str, Any] | None:
        """Return the confirmed leader; None if there is none."""
        found: dict[str, Any] | None = self.get("/leader")["leader"]
        return found

    def _ask(self, method: str, path: str, *, repeatable: bool, **request: Any) -> httpx.Response:
        retrying = Retrying(
            retry=retry_if_exception_type(UnreachableError),
            wait=wait_random_exponential(multiplier=0.2, max=2.0),
            stop=stop_after_delay(self.patience_s),
            reraise=True,
        )
        answer: httpx.Response = retrying(self._round, method, path, repeatable, request)
        return answer

    def _round(self, method: str, path: str, repeatable: bool, request: Mapping[str, Any]) -> httpx.Response:
        """Try each scheduler once, until one answers."""
        tried: dict[str, str] = {}
        for server in tuple(self._servers):
            headers = {**request.get("headers", {}), **credentials(server, self._token)}
            try:
                response = self._http.request(
                    method, f"{server}{PREFIX}{path}", **{**request, "headers": headers}
                )
            except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
                tried[server] = str(exc) or type(exc).__name__
                continue
            except httpx.TransportError as exc:
                tried[server] = str(exc) or type(exc).__name__
                if not repeatable:
                    raise DoubtfulError(server, tried[server]) from exc
                continue
            if response.status_code in (502, 503, 504):
                tried[server] = _detail(response)[1]
                if not repeatable:
                    raise DoubtfulError(server, tried[server])
                continue
            self._servers.remove(server)
            self._servers.insert(0, server)
            if response.is_success:
                return response
            raise ProblemError(response.status_code, *_detail(response))
        raise UnreachableError(tried)


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


def _detail(response: httpx.Response) -> tuple[str, str]:
    """Code and text of a refusal, also of one that a proxy sent."""
    try:
        problem = response.json()
        return str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        where = f"{response.request.method} {response.request.url}"
        return "http", f"{where} was answered with status {response.status_code}, and no reason"
