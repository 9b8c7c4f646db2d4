"""Turns every refusal into RFC 9457 problem details with a stable code. No handler builds its own."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import StringConstraints
from starlette.exceptions import HTTPException

from nimbus.domain.cluster.access import AccessDeniedError
from nimbus.domain.errors import NimbusError, RefusedError
from nimbus.domain.ids import InvalidNameError
from nimbus.domain.pipelines.webhooks import UnsignedRequestError
from nimbus.ports import StoreUnavailableError

_log = structlog.stdlib.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER_S = 2
_FORMS: dict[str, str] = {}
"""How a refusal describes a pattern."""


def form(pattern: str, words: str, **more: Any) -> StringConstraints:
    """A pattern of texts from outside. A refusal says `must be <words>`."""
    _FORMS[pattern] = words
    return StringConstraints(pattern=pattern, **more)


class ObjectNotFoundError(NimbusError):
    """The requested object does not exist."""

    exit_code = 3

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Sequence[dict[str, str]] = (),
    headers: dict[str, str] | None = None,
    **extra: Any,
) -> JSONResponse:
    """Build a problem document.

    `detail`: what happened, to which object, and what to do; `errors`: for bad input, `{place, message}` and
    `pointer` if there is one; `extra`: members besides the standard ones.
    """
    body: dict[str, Any] = {
        "type": f"urn:nimbus:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        **extra,
    }
    if errors:
        body["errors"] = list(errors)
    return JSONResponse(body, status_code=status, media_type=MEDIA_TYPE, headers=headers)


class ChangedError(NimbusError):
    """The object of a request does not have a revision that `If-Match` names. Nothing was done."""

    code = "changed"


class KeyReusedError(NimbusError):
    """The key was used before, with another request."""

    code = "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__(
            "this Idempotency-Key was sent within the last 24 hours with another method, path or body: "
            "choose a new key for each new request."
        )


class TooManyStreamsError(NimbusError):
    """A caller, or all callers together, have reached the limit of streams."""

    code = "too_many_streams"
    retryable = True


_STATUSES: Mapping[type[Exception], int] = {
    UnsignedRequestError: 401,
    AccessDeniedError: 403,
    ObjectNotFoundError: 404,
    RefusedError: 409,
    ChangedError: 412,
    InvalidNameError: 422,
    KeyReusedError: 422,
    TooManyStreamsError: 429,
    StoreUnavailableError: 503,
}
"""The status of each error whose code and message are the answer; 404 if a refused command names what is not
there, such as `unknown_pool`."""


def install(app: FastAPI) -> None:
    """Make `app` answer every error with a problem document."""
    for error in _STATUSES:
        app.add_exception_handler(error, _told)
    app.add_exception_handler(NimbusError, _ours)
    app.add_exception_handler(RequestValidationError, _bad_input)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def _code(exc: Exception) -> str:
    return str(getattr(exc, "code", "internal"))


def _told(_request: Request, exc: Exception) -> JSONResponse:
    status = next(_STATUSES[kind] for kind in type(exc).mro() if kind in _STATUSES)
    is_unknown = _code(exc).startswith("unknown_") or _code(exc) == "release_absent"
    return _answered(404 if status == 409 and is_unknown else status, exc)


def _answered(status: int, exc: Exception) -> JSONResponse:
    headers = {"Retry-After": str(RETRY_AFTER_S)} if status in (429, 503) else None
    return problem(status, _code(exc), str(exc), headers=headers)


def _ours(request: Request, exc: Exception) -> JSONResponse:
    if getattr(exc, "retryable", False):
        return _answered(503, exc)
    _log.error("request_failed", path=request.url.path, code=_code(exc), error=str(exc))
    return _answered(500, exc)


def _bad_input(_request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, RequestValidationError)  # noqa: S101 - the handler is registered for it alone
    errors = [_place(error) for error in exc.errors()]
    detail = "; ".join(f"{error['place']}: {error['message']}" for error in errors)
    return problem(422, "invalid_request", f"The request is not valid: {detail}.", errors=errors)


def _place(error: dict[str, Any]) -> dict[str, str]:
    """One place of bad input; in a body that can be parsed, also with a JSON pointer (RFC 6901)."""
    fault = {"place": ".".join(map(str, error["loc"])), "message": _said(error)}
    part, *names = error["loc"]
    if part == "body" and error["type"] != "json_invalid":
        fault["pointer"] = "".join(f"/{str(name).replace('~', '~0').replace('/', '~1')}" for name in names)
    return fault


def _said(error: dict[str, Any]) -> str:
    """The words of a form, or our message without Pydantic's prefix."""
    words = _FORMS.get(error.get("ctx", {}).get("pattern", ""))
    if error["type"].startswith("datetime"):
        words = "a time with an offset, such as 2026-01-31T06:00:00Z"
    return f"must be {words}" if words else error["msg"].removeprefix("Value error, ").rstrip(".")


def _http(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)  # noqa: S101 - as above
    code = HTTPStatus(exc.status_code).name.lower()
    detail = f"{request.method} {request.url.path}: {exc.detail}. The routes are in /openapi.json."
    headers = dict(exc.headers or {})
    if exc.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # The given header has the methods of one route, but a path may have several routes.
        path = getattr(request.scope.get("route"), "path", "")
        headers["Allow"] = ", ".join(request.app.methods(path)) or headers["Allow"]
    return problem(exc.status_code, code, detail, headers=headers)


def _unexpected(request: Request, exc: Exception) -> JSONResponse:
    reference = secrets.token_hex(4)
    _log.error("request_crashed", path=request.url.path, reference=reference, exc_info=exc)
    return problem(
        500,
        "internal",
        f"The server failed in a way it does not know. Its log has the cause under reference {reference}.",
        reference=reference,
    )
