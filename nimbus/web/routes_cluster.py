"""Pages about the cluster as a whole, about workers, and about the schedulers and their election."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api import views
from nimbus.api.paging import CursorText, PageQuery
from nimbus.api.requests import CommandIdText
from nimbus.api.routes_cluster import cluster_status, known_workers
from nimbus.api.services import ApiServices
from nimbus.domain.ids import CommandId
from nimbus.web.attention import Facts, notices
from nimbus.web.fires import due, first_of_all
from nimbus.web.pages import Pages

_WORKERS = 200
"""In one page."""
_FIRES = 10


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()

    @routes.get("/")
    def cluster(request: Request) -> Response:
        health, reader, now = services.health, services.reader, services.clock.now()
        status, pipelines, listed = cluster_status(services), reader.pipelines(), reader.run_list().values()
        facts = Facts(
            now=now,
            status=status,
            participants=views.participants_model(
                health.participants(), reader.schedulers(), health.leader()
            ).participants,
            workers=known_workers(services),
            pipelines=pipelines,
            due={record.name: at for record in pipelines if (at := due(record)) is not None},
            runs=sorted(listed, key=lambda run: (run.created_at, run.id), reverse=True),
        )
        shown = {
            "notices": notices(facts),
            "status": status,
            "fires": first_of_all(pipelines, now, _FIRES),
        }
        return pages.answer(request, "cluster.html", shown)

    @routes.get("/workers")
    def workers(request: Request, cursor: CursorText = None) -> Response:
        found = known_workers(services)
        page = PageQuery(_WORKERS, cursor).page(found, lambda one: (one.id,))
        shown = {
            "workers": page.rows,
            "slots": sum(one.slots for one in found if not one.draining),
            "busy": sum(one.busy for one in found),
            "count": len(found),
            "is_later_page": cursor is not None,
            "later": page.next_cursor,
        }
        return pages.answer(request, "workers.html", shown)

    @routes.get("/election")
    def election(request: Request, command: CommandIdText | None = None) -> Response:
        health, schedulers = services.health, services.reader.schedulers()
        found = views.participants_model(health.participants(), schedulers, health.leader())
        others = [one for one in found.participants if not one.is_leader and one.queue_position is not None]
        shown = {
            "command": command,
            "decided": None if command is None else services.commands.outcome(CommandId(command)),
            "leader": found.leader,
            "participants": found.participants,
            "next": others[0] if others else None,
        }
        return pages.answer(request, "election.html", shown)

    return routes
