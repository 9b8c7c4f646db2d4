"""Links of `/openapi.json`: from operations that create something to those that read it.

They are part of the answers to a write: 202, and 200 if it is decided already. Tools follow them to build
sequences of requests, such as start, read, stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RUN = {"run_id": "$response.body#/run_id"}
_BACKFILL = {"backfill": "$request.body#/id"}
_OF_COMMAND = {"command": ("cluster.command", {"command_id": "$response.body#/command_id"})}
_OF_RUN = {
    "run": ("runs.get", _RUN),
    "explanation": ("explanations.run", _RUN),
    "stop": ("runs.stop", _RUN),
}
_OF_OPERATION: Mapping[str, Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "runs.start": _OF_RUN,
    "runs.rerun": _OF_RUN,
    "webhooks.start": _OF_RUN,
    "backfills.create": {
        # It can be read after a leader has accepted it.
        "backfill": ("backfills.get", _BACKFILL),
        "steer": ("backfills.steer", _BACKFILL),
    },
    "limits.set_pool": {"pool": ("limits.pool", {"name": "$request.path.name"})},
    "variables.set_variable": {"variable": ("variables.get", {"name": "$request.path.name"})},
    "access.create_token": {"token": ("access.token", {"token_id": "$request.path.token_id"})},
}


def add_links(operation: dict[str, Any]) -> None:
    """Add links to the answers of an operation, if it queues a command."""
    answers = operation["responses"]
    if "202" not in answers:
        return
    links = {**_OF_COMMAND, **_OF_OPERATION.get(operation["operationId"], {})}
    told = {
        name: {"operationId": target, "parameters": parameters}
        for name, (target, parameters) in links.items()
    }
    answers["200"]["links"] = answers["202"]["links"] = told
