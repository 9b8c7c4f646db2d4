"""The application's OpenAPI document, and what follows from it."""

from __future__ import annotations

import threading
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from nimbus.api.access import COOKIE, PLAIN_COOKIE
from nimbus.api.documented_examples import EXAMPLES
from nimbus.api.documented_links import add_links
from nimbus.api.models import ProblemModel
from nimbus.api.needs import is_open
from nimbus.api.problems import MEDIA_TYPE

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
"""The last one: on loopback the API may be configured to ask for nothing."""


class DocumentedApi(FastAPI):
    """FastAPI, with problems documented under their own media type."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._documenting = threading.Lock()

    def openapi(self) -> dict[str, Any]:
        """The document. Made at its first use, which takes a while; any thread."""
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
                        add_links(operation)
                        if is_open(path):
                            operation["security"] = []
            return self.openapi_schema or {}

    def methods(self, path: str) -> list[str]:
        """The methods of a path template such as `/api/v1/runs/{run_id}`, sorted."""
        methods = {method.upper() for method in self.openapi()["paths"].get(path, {})}
        return sorted(methods | {"HEAD"} if "GET" in methods else methods)


def operation_id(route: APIRoute) -> str:
    """Such as `runs.start`, of a route's tag and its function; `runs.list` and `runs.get` of the reads."""
    tag = str(route.tags[0]) if route.tags else "api"
    verb = {tag: "list", tag.removesuffix("s"): "get"}.get(route.name, route.name.removesuffix("_"))
    return f"{tag}.{verb}"


def _retype_problems(responses: dict[str, Any]) -> None:
    """FastAPI documents every model under the media type of the route's answer."""
    problem = f"#/components/schemas/{ProblemModel.__name__}"
    for response in responses.values():
        content = response.get("content", {})
        for media_type in [
            name for name, told in content.items() if told.get("schema", {}).get("$ref") == problem
        ]:
            content[MEDIA_TYPE] = content.pop(media_type)
