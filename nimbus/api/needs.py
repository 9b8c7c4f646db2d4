"""The role that each route needs. A route that is missing here fails a test, and needs the role admin."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nimbus.domain.access import AccessRole

_ADMIN, _AUTHOR, _OPERATOR, _VIEWER = (
    AccessRole.ADMIN,
    AccessRole.AUTHOR,
    AccessRole.OPERATOR,
    AccessRole.VIEWER,
)
_API: Mapping[str, AccessRole] = {
    "GET /alerts": _VIEWER,
    "POST /alerts/targets/{name}/test": _OPERATOR,
    "POST /backfill-plan": _VIEWER,
    "GET /backfills": _VIEWER,
    "POST /backfills": _OPERATOR,
    "GET /backfills/{backfill}": _VIEWER,
    "POST /backfills/{backfill}/{verb}": _OPERATOR,
    "POST /cluster/abdicate": _ADMIN,
    "GET /cluster/history": _VIEWER,
    "GET /cluster/succession": _VIEWER,
    "GET /commands": _VIEWER,
    "GET /commands/{command_id}": _VIEWER,
    "GET /events": _VIEWER,
    "GET /leader": _VIEWER,
    "GET /participants": _VIEWER,
    "GET /pipelines": _VIEWER,
    "GET /pipelines/{name}": _VIEWER,
    "DELETE /pipelines/{name}": _AUTHOR,
    "POST /pipelines/{name}/activate": _OPERATOR,
    "GET /pipelines/{name}/explanation": _VIEWER,
    "GET /pipelines/{name}/intervals": _VIEWER,
    "GET /runs/{run_id}/reads": _VIEWER,
    "GET /datasets": _VIEWER,
    "GET /datasets/{name}": _VIEWER,
    "GET /datasets/{name}/versions": _VIEWER,
    "POST /datasets/{name}/versions": _OPERATOR,
    "POST /datasets/{name}/remove": _AUTHOR,
    "POST /datasets/{name}/withdraw": _AUTHOR,
    "PUT /pipelines/{name}/owner": _ADMIN,
    "POST /pipelines/{name}/pause": _OPERATOR,
    "POST /pipelines/{name}/rewind": _OPERATOR,
    "GET /pipelines/{name}/releases": _VIEWER,
    "POST /pipelines/{name}/releases": _AUTHOR,
    "GET /pipelines/{name}/releases/{digest}": _VIEWER,
    "GET /pipelines/{name}/releases/{digest}/diff": _VIEWER,
    "GET /pools": _VIEWER,
    "GET /pools/{name}": _VIEWER,
    "PUT /pools/{name}": _OPERATOR,
    "DELETE /pools/{name}": _OPERATOR,
    "POST /purge-plan": _VIEWER,
    "POST /purges": _ADMIN,
    "GET /runs": _VIEWER,
    "POST /runs": _OPERATOR,
    "GET /runs/{run_id}": _VIEWER,
    "GET /runs/{run_id}/explanation": _VIEWER,
    "GET /runs/{run_id}/outputs": _VIEWER,
    "POST /runs/{run_id}/pause": _OPERATOR,
    "GET /runs/{run_id}/replay": _VIEWER,
    "POST /runs/{run_id}/rerun": _OPERATOR,
    "GET /runs/{run_id}/results": _VIEWER,
    "POST /runs/{run_id}/resume": _OPERATOR,
    "POST /runs/{run_id}/stop": _OPERATOR,
    "POST /runs/{run_id}/tasks/{task}/approval": _OPERATOR,
    "GET /runs/{run_id}/tasks/{task}/children": _VIEWER,
    "GET /runs/{run_id}/tasks/{task}/events": _VIEWER,
    "GET /runs/{run_id}/tasks/{task}/log": _VIEWER,
    "POST /runs/{run_id}/tasks/{task}/mark": _OPERATOR,
    "GET /runs/{run_id}/tasks/{task}/output": _OPERATOR,
    "GET /runs/{run_id}/timeline": _VIEWER,
    "GET /settings": _ADMIN,
    "GET /shares": _VIEWER,
    "PUT /shares/{team}": _ADMIN,
    "DELETE /shares/{team}": _ADMIN,
    "GET /status": _VIEWER,
    "GET /tokens": _ADMIN,
    "GET /tokens/{token_id}": _ADMIN,
    "PUT /tokens/{token_id}": _ADMIN,
    "DELETE /tokens/{token_id}": _ADMIN,
    "GET /variables": _VIEWER,
    "GET /variables/{name}": _VIEWER,
    "PUT /variables/{name}": _OPERATOR,
    "DELETE /variables/{name}": _OPERATOR,
    "GET /whoami": _VIEWER,
    "GET /workers": _VIEWER,
    "GET /workers/wanted": _VIEWER,
    "POST /workers/{worker}/cordon": _OPERATOR,
    "POST /workers/{worker}/uncordon": _OPERATOR,
}
"""Below `/api/v1`."""
_OTHERS: Mapping[str, AccessRole] = {
    "GET /metrics": _VIEWER,
    "GET /openapi.json": _VIEWER,
}


def _below_prefix(route: str) -> str:
    method, _, path = route.partition(" ")
    return f"{method} /api/v1{path}"


NEEDS: Mapping[str, AccessRole] = MappingProxyType(
    {_below_prefix(route): role for route, role in _API.items()} | dict(_OTHERS)
)
"""By method and path, such as `GET /api/v1/runs/{run_id}`."""

OPEN = frozenset(
    {"/", "/healthz", "/readyz", "/ui/login", "/ui/login/provider", "/ui/login/callback", "/ui/logout"}
)
"""Open paths: `/`, which only leads to the pages; those of supervisors and load balancers; login and logout.
These senders have no token."""
OPEN_BELOW = ("/hooks/", "/attempt/v1/", "/ui/static/")
"""Open prefixes: they have their own credentials (a signature, an attempt's token), or are public."""


def is_open(path: str) -> bool:
    """True when a path needs no authentication."""
    return path in OPEN or path.startswith(OPEN_BELOW)
