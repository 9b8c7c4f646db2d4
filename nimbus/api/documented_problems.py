"""The problems that any route may return, for `/openapi.json`."""

from __future__ import annotations

from typing import Any

from nimbus.api.models import ProblemModel

_MEANINGS = {
    400: "The body cannot be read.",
    401: "The caller is not known.",
    403: "The caller may not do this.",
    404: "The object does not exist.",
    405: "The path does not have this method: see `Allow`.",
    409: "Refused, by the leader or before; `code` has the reason.",
    413: "The body is too large.",
    421: "This scheduler does not answer for that `Host`.",
    422: "The request is not valid; `errors` names the places.",
    429: "Too many requests: try again after `Retry-After`.",
    500: "The server failed; `reference` is in its log.",
    503: "ZooKeeper or storage does not answer: try again after `Retry-After`, or another scheduler.",
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    **{status: {"model": ProblemModel, "description": meaning} for status, meaning in _MEANINGS.items()},
    "default": {"model": ProblemModel, "description": "A problem, with a stable `code`."},
}
