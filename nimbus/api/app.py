"""Builds the API application and its OpenAPI document. `nimbus.bootstrap` calls it once for each process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.routing import APIRoute

from nimbus.api.access import COOKIE, PLAIN_COOKIE, Authenticate, authorize, is_open
from nimbus.api.caller import note_requester
from nimbus.api.middleware import (
    AnswerHead,
    BodyLimit,
    CrossSiteGuard,
    EntityTags,
    HttpMetrics,
    Measure,
    SayVersion,
)
from nimbus.api.models import ProblemModel
from nimbus.api.openapi_examples import EXAMPLES
from nimbus.api.problems import MEDIA_TYPE, install
from nimbus.api.routes import (
    access,
    attempts,
    backfills,
    cluster,
    commands,
    datasets,
    events,
    explanations,
    health,
    limits,
    login,
    pipelines,
    releases,
    terms,
    variables,
    webhooks,
)
from nimbus.api.routes.events import EventHub
from nimbus.api.runs import commands as run_commands
from nimbus.api.runs import logs, outputs, purges, replay, routes, selections
from nimbus.api.seen import seen_services
from nimbus.api.services import ApiServices
from nimbus.api.submitting import note_if_match, note_key

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
"""The problems that any route may return."""
_SCHEMES = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of the cluster, or one of the identity provider.",
    },
    "session": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": f"Of a browser that has logged in. Without TLS its name is `{PLAIN_COOKIE}`.",
    },
}
_SECURITY: list[dict[str, list[str]]] = [{"token": []}, {"session": []}, {}]
"""The last entry: on loopback the API may need no authentication."""
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


class DocumentedApi(FastAPI):
    """FastAPI, with problem documents under their own media type."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._documenting = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """The document. The first call builds it, which takes a while; any thread."""
        with self._documenting:
            if self.openapi_schema is None:
                document = super().openapi()
                document["components"]["securitySchemes"] = _SCHEMES
                for name, example in EXAMPLES.items():
                    document["components"]["schemas"][name]["examples"] = [example]
                document["security"] = _SECURITY
                for path, operations in document["paths"].items():
                    for operation in operations.values():
                        _retype_problems(operation["responses"])
                        _add_links(operation)
                        if is_open(path):
                            operation["security"] = []
            return self.openapi_schema or {}

    def methods(self, path: str) -> list[str]:
        """The methods of a path template such as `/api/v1/runs/{run_id}`, sorted."""
        methods = {method.upper() for method in self.openapi()["paths"].get(path, {})}
        return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def operation_id(route: APIRoute) -> str:
    """An id such as `runs.start`, from a route's tag and function; reads have `runs.list` and `runs.get`."""
    tag = str(route.tags[0]) if route.tags else "api"
    verb = {tag: "list", tag.removesuffix("s"): "get"}.get(route.name, route.name.removesuffix("_"))
    return f"{tag}.{verb}"


def _retype_problems(responses: dict[str, Any]) -> None:
    """Move problem documents to their media type: FastAPI documents them under that of the route."""
    problem = f"#/components/schemas/{ProblemModel.__name__}"
    for response in responses.values():
        content = response.get("content", {})
        for media_type in [
            name for name, told in content.items() if told.get("schema", {}).get("$ref") == problem
        ]:
            content[MEDIA_TYPE] = content.pop(media_type)


def _add_links(operation: dict[str, Any]) -> None:
    """Link the answers of an operation that queues a command to operations that read what it creates.

    The links are part of 202, and of 200 if the command is decided already. Tools follow them to build
    sequences of requests, such as start, read, stop.
    """
    answers = operation["responses"]
    if "202" not in answers:
        return
    links = {**_OF_COMMAND, **_OF_OPERATION.get(operation["operationId"], {})}
    told = {
        name: {"operationId": target, "parameters": parameters}
        for name, (target, parameters) in links.items()
    }
    answers["200"]["links"] = answers["202"]["links"] = told


PREFIX = "/api/v1"

_DESCRIPTION = """\
Any scheduler answers reads. Writes become commands, durable once answered, and are decided by the leader:
ask with `?wait=10` to get the decision with the answer. Errors are problem details (RFC 9457) with a stable
`code`. A write with the header `Idempotency-Key` may be sent again: it is done once. One with `If-Match` is
done only if nothing has changed since the `ETag` was read.
"""


def create_app(services: ApiServices, allowed_hosts: Iterable[str] = ()) -> FastAPI:
    """Build the application on top of `services`. Starts nothing.

    `allowed_hosts`: names and addresses that requests may be sent to, besides those of loopback.
    """
    warm_ups, services = (services.reader.pipelines, services.reader.run_list), seen_services(services)
    app = DocumentedApi(
        title="Nimbus",
        version=services.health.info().version,
        description=_DESCRIPTION,
        docs_url=None,  # the page loads scripts from the Internet; clusters are often offline
        redoc_url=None,
        responses=PROBLEMS,
        generate_unique_id_function=operation_id,
        dependencies=[Depends(authorize)],
    )
    install(app)
    app.state.reader, app.state.services, app.state.warm_ups = services.reader, services, warm_ups
    app.state.events = hub = EventHub(services.changes)
    metrics = HttpMetrics(services.metrics)
    metrics.watch_streams(lambda: hub.streams)
    app.add_middleware(EntityTags)
    app.add_middleware(SayVersion, version=services.changes.version)
    app.add_middleware(BodyLimit)
    app.add_middleware(Authenticate, gate=services.gate, provider=services.provider)
    app.add_middleware(CrossSiteGuard, allowed_hosts=allowed_hosts)
    app.add_middleware(Measure, metrics=metrics)
    app.add_middleware(AnswerHead)
    # First, because FastAPI builds the routes of a router when it first searches a path in it. A client that
    # waits for the start requests only these; `ApiServer.warm_up` builds the others.
    app.include_router(health.router(services))
    parts = (
        cluster, commands, limits, backfills, variables, explanations, datasets, pipelines, releases, routes,
        logs, outputs, replay, run_commands, selections, access, purges, terms,
    )  # fmt: skip
    noted = [Depends(note_requester), Depends(note_key), Depends(note_if_match)]
    for part in parts:
        app.include_router(part.router(services, PREFIX), dependencies=noted)
    app.include_router(events.router(hub, services.gate, PREFIX))
    app.include_router(webhooks.router(services))
    app.include_router(login.router(services))
    if services.gateway is not None:
        app.include_router(attempts.router(services.gateway))
    return app
