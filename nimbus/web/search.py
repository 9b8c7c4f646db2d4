"""The search for runs, pipelines, datasets and backfills by a part of their names."""

from __future__ import annotations

from heapq import nlargest
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nimbus.api.services import ApiServices
from nimbus.web.pages import Pages, segment

_MOST = 50


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()

    @routes.get("/search")
    def find(request: Request, q: Annotated[str, Query(max_length=300)] = "") -> Response:
        wanted = q.strip().lower()
        listed = services.reader.run_list()
        if q.strip() in listed:
            return RedirectResponse(f"/ui/runs/{segment(q.strip())}", 303)
        names = [record.name for record in services.reader.pipelines() if wanted in record.name.lower()]
        fitting = (run for run in listed.values() if wanted in run.id.lower())
        runs = nlargest(_MOST, fitting, key=lambda run: (run.created_at, run.id)) if wanted else []
        datasets = sorted(name for name in services.reader.dataset_names() if wanted in name.lower())
        backfills = (one for one in services.reader.backfills() if wanted in one.id.lower())
        newest = nlargest(_MOST, backfills, key=lambda one: (one.created_at, one.id)) if wanted else []
        shown = {
            "q": q,
            "runs": runs,
            "pipelines": names[:_MOST] if wanted else [],
            "backfills": newest,
            "datasets": datasets[:_MOST] if wanted else [],
            "most": _MOST,
        }
        return pages.answer(request, "search.html", shown)

    return routes
