"""The role that each route needs. A route that is missing here fails a test, and needs the role admin."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nimbus.domain.access import AccessRole

_NONE, _STATUS, _LOGS, _VIEWER, _OPERATOR, _AUTHOR, _ADMIN = AccessRole
_API: Mapping[str, AccessRole] = {
    "GET /alerts": _NONE,
    "POST /alerts/targets/{name}/test": _OPERATOR,
    "POST /backfill-plan": _VIEWER,
    "GET /backfills": _NONE,
    "POST /backfills": _OPERATOR,
    "GET /backfills/{backfill}": _VIEWER,
    "POST /backfills/{backfill}/{verb}": _OPERATOR,
    "POST /cluster/abdicate": _ADMIN,
    "GET /cluster/history": _NONE,
    "GET /cluster/succession": _NONE,
    "GET /commands": _NONE,
    "GET /commands/{command_id}": _NONE,
    "GET /events": _NONE,
    "GET /holds": _NONE,
    "PUT /holds/{hold}": _OPERATOR,
    "DELETE /holds/{hold}": _OPERATOR,
    "GET /leader": _NONE,
    "GET /participants": _NONE,
    "GET /pipelines": _NONE,
    "GET /pipelines/{name}": _STATUS,
    "DELETE /pipelines/{name}": _AUTHOR,
    "POST /pipelines/{name}/activate": _OPERATOR,
    "GET /pipelines/{name}/explanation": _STATUS,
    "GET /pipelines/{name}/intervals": _STATUS,
    "GET /runs/{run_id}/reads": _VIEWER,
    "GET /datasets": _NONE,
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
    "GET /pools": _NONE,
    "GET /pools/{name}": _NONE,
    "PUT /pools/{name}": _OPERATOR,
    "DELETE /pools/{name}": _OPERATOR,
    "POST /purge-plan": _VIEWER,
    "POST /purges": _ADMIN,
    "GET /runs": _NONE,
    "POST /runs": _OPERATOR,
    "GET /runs/{run_id}": _STATUS,
    "GET /runs/{run_id}/explanation": _STATUS,
    "GET /runs/{run_id}/outputs": _VIEWER,
    "PUT /runs/{run_id}/note": _OPERATOR,
    "POST /runs/{run_id}/pause": _OPERATOR,
    "GET /runs/{run_id}/replay": _VIEWER,
    "POST /runs/{run_id}/rerun": _OPERATOR,
    "GET /runs/{run_id}/results": _VIEWER,
    "POST /runs/{run_id}/resume": _OPERATOR,
    "POST /runs/{run_id}/stop": _OPERATOR,
    "POST /runs/{run_id}/tasks/{task}/approval": _OPERATOR,
    "GET /runs/{run_id}/tasks/{task}/children": _VIEWER,
    "GET /runs/{run_id}/tasks/{task}/events": _LOGS,
    "GET /runs/{run_id}/tasks/{task}/log": _LOGS,
    "POST /runs/{run_id}/tasks/{task}/mark": _OPERATOR,
    "GET /runs/{run_id}/tasks/{task}/output": _OPERATOR,
    "GET /runs/{run_id}/timeline": _STATUS,
    "POST /selections": _NONE,
    "POST /selections/preview": _NONE,
    "GET /grants": _NONE,
    "GET /grants/may": _NONE,
    "POST /grants": _ADMIN,
    "POST /grants/revoke": _ADMIN,
    "GET /settings": _ADMIN,
    "GET /shares": _VIEWER,
    "PUT /shares/{team}": _ADMIN,
    "GET /calendars": _VIEWER,
    "PUT /calendars/{name}": _ADMIN,
    "DELETE /calendars/{name}": _ADMIN,
    "GET /status": _NONE,
    "GET /tokens": _ADMIN,
    "GET /tokens/{token_id}": _ADMIN,
    "PUT /tokens/{token_id}": _ADMIN,
    "DELETE /tokens/{token_id}": _ADMIN,
    "GET /variables": _NONE,
    "GET /variables/{name}": _VIEWER,
    "PUT /variables/{name}": _OPERATOR,
    "DELETE /variables/{name}": _OPERATOR,
    "GET /workers/wanted": _VIEWER,
    "GET /whoami": _NONE,
    "GET /workers": _NONE,
    "POST /workers/{worker}/cordon": _OPERATOR,
    "POST /workers/{worker}/uncordon": _OPERATOR,
}
"""Below `/api/v1`. Lists need no role: they leave out what their caller may not see."""
_OTHERS: Mapping[str, AccessRole] = {
    "GET /metrics": _VIEWER,
    "GET /openapi.json": _NONE,
}


def _below_prefix(route: str) -> str:
    method, _, path = route.partition(" ")
    return f"{method} /api/v1{path}"


NEEDS: Mapping[str, AccessRole] = MappingProxyType(
    {_below_prefix(route): role for route, role in _API.items()} | dict(_OTHERS)
)
"""By method and path, such as `GET /api/v1/runs/{run_id}`."""

CLUSTER_WIDE = frozenset(
    {
        "GET /metrics",
        "POST /api/v1/alerts/targets/{name}/test",
        "POST /api/v1/purge-plan",
        "GET /api/v1/shares",
    }
)
"""Routes for which no grant counts: they are about more than one pipeline."""
_PAGES: Mapping[str, AccessRole] = {
    "GET /runs/{run_id}/tasks/{task}": _VIEWER,
    "GET /pipelines/{name}/backfill": _VIEWER,
}


def page_need(route: str) -> AccessRole:
    """The role that a page below `/ui` needs: that of the API's route of the same path, if there is one."""
    return _PAGES.get(route, NEEDS.get(_below_prefix(route), _NONE) if route.startswith("GET") else _NONE)


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
