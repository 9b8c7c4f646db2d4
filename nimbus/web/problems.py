"""Every refusal as a page: what happened, to which object, and where to continue."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from nimbus.api import caller, problems
from nimbus.web.pages import Pages

_HEADINGS = {
    HTTPStatus.BAD_REQUEST: "Not a valid request",
    HTTPStatus.FORBIDDEN: "Not allowed",
    HTTPStatus.NOT_FOUND: "Not found",
    HTTPStatus.CONFLICT: "Refused",
    HTTPStatus.UNPROCESSABLE_ENTITY: "Not a valid request",
    HTTPStatus.TOO_MANY_REQUESTS: "Too many requests",
    HTTPStatus.INTERNAL_SERVER_ERROR: "Something went wrong",
    HTTPStatus.GATEWAY_TIMEOUT: "No answer in time",
}
"""Headings of pages, by status; others have the phrase of HTTP."""
_KEPT = ("retry-after", "allow", "location", "www-authenticate")


def install(web: FastAPI, pages: Pages) -> None:
    """Make `web` answer every error with a page that has the content of the API's problem document."""
    problems.install(web)
    web.add_exception_handler(HTTPException, _http)
    for kind, handler in list(web.exception_handlers.items()):
        if kind is not WebSocketRequestValidationError:
            web.exception_handlers[kind] = _page_of(handler, pages)


def problem_page(
    request: Request, pages: Pages, document: Mapping[str, Any], headers: Mapping[str, str]
) -> Response:
    """The page for a problem document. `headers`: headers of its answer."""
    status = int(document["status"])
    template = "unavailable.html" if status == HTTPStatus.SERVICE_UNAVAILABLE else "problem.html"
    shown = {"problem": document, "heading": _HEADINGS.get(HTTPStatus(status), document["title"])}
    answer = pages.answer(request, template, shown, status=status)
    answer.headers.update({name: value for name, value in headers.items() if name.lower() in _KEPT})
    return answer


def _page_of(
    handler: Callable[[Request, Any], Any], pages: Pages
) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, exc: Exception) -> Response:
        told: Response = handler(request, exc)
        if not caller.is_known():  # a page shows who leads, which needs authentication
            return told
        return problem_page(request, pages, json.loads(bytes(told.body)), told.headers)

    return answer


def _http(request: Request, exc: Exception) -> JSONResponse:
    assert isinstance(exc, HTTPException)  # noqa: S101 - the handler is registered for it alone
    status = HTTPStatus(exc.status_code)
    detail = (
        f"{request.url.path}: {exc.detail}."
        if status is not HTTPStatus.NOT_FOUND
        else (f"There is no page {request.url.path}.")
    )
    return problems.problem(status, status.name.lower(), detail, headers=dict(exc.headers or {}))
