"""Builds the application of the pages below `/ui`. Called once, by `nimbus.bootstrap`."""

from __future__ import annotations

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nimbus.api.access import authorize_page
from nimbus.api.seen import seen_services
from nimbus.api.services import ApiServices
from nimbus.web import actions, backfill, cluster, dataset, problems, release
from nimbus.web.home import page as home
from nimbus.web.home.day import Day
from nimbus.web.pages import Frames, Pages
from nimbus.web.pipeline import page as pipeline
from nimbus.web.run import page as run
from nimbus.web.task import output
from nimbus.web.task import page as task


def add_pages(api: FastAPI, services: ApiServices) -> None:
    """Serve pages below `/ui` of `api`, which has all of its routes; forms send their requests to it."""
    api.state.day, services = Day(services.reader, services.history), seen_services(services)
    pages = Pages(Frames(services))
    api.state.warm_ups += (pages.compile_first,)
    web = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, dependencies=[Depends(authorize_page)])
    web.state.api, web.state.reader = api, services.reader
    problems.install(web, pages)
    parts = (backfill, cluster, dataset, home, pipeline, release, run, task, output)
    for part in parts:
        web.include_router(part.router(services, pages))
    web.include_router(actions.router(pages))

    @web.get("/help")
    def keys(request: Request) -> Response:
        return pages.answer(request, "help.html", {})

    @web.get("/static/{version}/{name}")
    async def asset(request: Request, version: str, name: str) -> Response:
        # No error page: files need no authentication, and a page would show who leads.
        return pages.assets.answer(request, version, name) or Response(status_code=404)

    api.mount("/ui", web)

    @api.get("/", include_in_schema=False)
    def first_page() -> Response:
        return RedirectResponse("/ui/", headers={"Cache-Control": "no-store"})
