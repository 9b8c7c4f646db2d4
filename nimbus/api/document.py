"""The application's OpenAPI document, and facts derived from it."""

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
"""The last entry: on loopback the API may need no authentication."""


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
                        add_links(operation)
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
