"""Pages about parts of the cluster: workers, election, commands, the answering scheduler; and the search."""

from __future__ import annotations

import platform
from collections import Counter
from heapq import nlargest
from itertools import islice
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from nimbus.api import views
from nimbus.api.caller import grants, principal
from nimbus.api.models import WorkerModel
from nimbus.api.paging import CursorText, PageQuery
from nimbus.api.requests import CommandIdText
from nimbus.api.routes.access import list_tokens
from nimbus.api.routes.cluster import effective_settings, known_workers
from nimbus.api.routes.commands import CommandFilter, KindText, SubmitterText, list_commands, pending_commands
from nimbus.api.routes.limits import known_shares
from nimbus.api.routes.terms import TermModel, known_terms, succession, term_model
from nimbus.api.services import ApiServices
from nimbus.domain.cluster.access import AccessRole
from nimbus.domain.cluster.terms import EndCause
from nimbus.domain.commands import COMMAND_KINDS
from nimbus.web.pages import ListOrder, Pages, PipelineFilter, SortText, decision, none_if_empty, segment

_WORKERS, _TERMS, _COMMANDS, _FOUND = 200, 40, 100, 50
"""Limits of one page; that of commands is one for decided and one for waiting ones."""
WORKER_STATES = {
    "free": "waiting",
    "working": "running",
    "cordoned": "paused",
    "draining": "stopping",
    "lacks room": "failed",
    "backs off": "queued",
}
"""States of workers, each with its icon."""
_WorkerState = Annotated[
    Literal["free", "working", "cordoned", "draining", "lacks room", "backs off"] | None,
    BeforeValidator(none_if_empty),
]


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()
    for part in (_workers, _election, _commands, _about, _search):
        part(routes, services, pages)
    return routes


def _workers(routes: APIRouter, services: ApiServices, pages: Pages) -> None:
    @routes.get("/workers")
    def workers(
        request: Request,
        state: _WorkerState = None,
        find: Annotated[str, Query(max_length=200)] = "",
        sort: SortText = None,
        cursor: CursorText = None,
    ) -> Response:
        known = known_workers(services, services.reader.schedulers())
        fitting = (worker for worker in known if state in (None, worker_state(worker)) and _has(worker, find))
        order: ListOrder[WorkerModel] = ListOrder.of(
            sort,
            "id",
            id=lambda worker: (worker.id,),
            slots=lambda worker: (worker.busy, worker.slots, worker.id),
            load=lambda worker: (int(100 * worker.load_average), worker.id),
            memory=lambda worker: (worker.memory_available_bytes, worker.id),
            reported=lambda worker: (int(worker.reported_at.timestamp()), worker.id),
        )
        page = PageQuery(_WORKERS, cursor).page(fitting, order.key, newest_first=order.newest_first)
        shown = {
            "workers": page.rows,
            "state_of": worker_state,
            "states": WORKER_STATES,
            "given": {"state": state, "find": find, "sort": sort},
            "sort": order.sort,
            "slots": sum(worker.slots for worker in known if not worker.draining),
            "busy": sum(worker.busy for worker in known),
            "count": len(known),
            "teams": known_shares(services),
            "later": page.next_cursor,
        }
        return pages.answer(request, "workers.html", shown)


def worker_state(worker: WorkerModel) -> str:
    """A key of `WORKER_STATES`: what keeps it from work first."""
    if worker.cordoned is not None:
        return "cordoned"
    if worker.draining:
        return "draining"
    if worker.lacks:
        return "lacks room"
    if worker.refusals:
        return "backs off"
    return "working" if worker.busy else "free"


def _has(worker: WorkerModel, text: str) -> bool:
    """True when its id, host, a label or a target has a text in its name."""
    names = (worker.id, worker.hostname, *worker.labels, *worker.targets)
    return any(text.casefold() in name.casefold() for name in names)


def _election(routes: APIRouter, services: ApiServices, pages: Pages) -> None:
    @routes.get("/election")
    def election(
        request: Request, command: CommandIdText | None = None, cursor: CursorText = None
    ) -> Response:
        health, schedulers = services.health, services.reader.schedulers()
        model = views.participants_model(health.participants(), schedulers, health.leader())
        page, complete = known_terms(services, PageQuery(_TERMS, cursor))
        terms = [term_model(term) for term in page.rows]
        others = [
            participant
            for participant in model.participants
            if not participant.is_leader and participant.queue_position is not None
        ]
        shown = {
            **decision(services, command),
            "leader": model.leader,
            "participants": model.participants,
            "next": others[0] if others else None,
            "ready": [participant.id for participant in others if participant.ready],
            "succession": succession(services, schedulers),
            "terms": terms,
            "terms_complete": complete,
            "later_terms": page.next_cursor,
            "cause": cause,
        }
        return pages.answer(request, "election.html", shown)


CAUSES = {
    EndCause.RESIGNED: "handed over",
    EndCause.HANDED_OVER: "handed over by name",
    EndCause.STOPPED: "process stopped",
    EndCause.FAILED: "engine failed",
    EndCause.LOST: "lost the lock",
    EndCause.DIED: "died, or was cut off",
}


def cause(term: TermModel) -> str:
    """Why a term ended."""
    return "" if term.cause is None else CAUSES[term.cause]


def _commands(routes: APIRouter, services: ApiServices, pages: Pages) -> None:
    @routes.get("/commands")
    def commands(
        request: Request,
        pipeline: PipelineFilter = None,
        kind: Annotated[KindText | None, BeforeValidator(none_if_empty)] = None,
        by: Annotated[SubmitterText | None, BeforeValidator(none_if_empty)] = None,
        outcome: Annotated[
            Literal["refused"] | None, BeforeValidator(none_if_empty), Query(description="Only refusals.")
        ] = None,
        of: Annotated[CommandIdText | None, BeforeValidator(none_if_empty), Query(alias="command")] = None,
        cursor: CursorText = None,
    ) -> Response:
        wanted = CommandFilter(
            pipeline=pipeline, kind=kind, submitted_by=by, of=of, refused=outcome == "refused"
        )
        waiting = sorted(filter(wanted.fits, pending_commands(services)), key=lambda row: row.at)
        page = list_commands(services, wanted, PageQuery(_COMMANDS, cursor))
        given = {"pipeline": pipeline, "kind": kind, "by": by, "outcome": outcome, "command": of}
        shown = {
            "waiting": list(islice(waiting, _COMMANDS)),
            "more_waiting": max(0, len(waiting) - _COMMANDS),
            "commands": page.commands,
            "history_complete": page.history_complete,
            "given": given,
            "is_filtered": any(given.values()),
            "kinds": COMMAND_KINDS,
            "older": page.next_cursor,
        }
        return pages.answer(request, "commands.html", shown)


def _about(routes: APIRouter, services: ApiServices, pages: Pages) -> None:
    @routes.get("/about")
    def about(request: Request, changed: bool = False) -> Response:
        asks = principal()
        is_admin = asks.role is AccessRole.ADMIN
        settings = effective_settings(services).settings if is_admin else []
        reader = services.reader
        shown = {
            "me": services.health.info(),
            "schema": services.health.schema(),
            "python": platform.python_version(),
            "schedulers": sorted(Counter(scheduler.version for scheduler in reader.schedulers()).items()),
            "workers": sorted(Counter(worker.version for worker in reader.workers()).items()),
            "checks": services.health.readiness(),
            "asks": asks,
            "is_admin": is_admin,
            "changed": changed,
            "settings": [setting for setting in settings if not (changed and setting.default)],
            "grants": reader.settings().grants if is_admin else grants(),
            "tokens": list_tokens(services).tokens if is_admin else [],
        }
        return pages.answer(request, "about.html", shown)


def _search(routes: APIRouter, services: ApiServices, pages: Pages) -> None:
    @routes.get("/search")
    def find(request: Request, q: Annotated[str, Query(max_length=300)] = "") -> Response:
        wanted = q.strip().lower()
        listed = services.reader.run_list()
        if q.strip() in listed:
            return RedirectResponse(f"/ui/runs/{segment(q.strip())}", 303)
        names = [record.name for record in services.reader.pipelines() if wanted in record.name.lower()]
        fitting = (run for run in listed.values() if wanted in run.id.lower())
        runs = nlargest(_FOUND, fitting, key=lambda run: (run.created_at, run.id)) if wanted else []
        datasets = sorted(name for name in services.reader.dataset_names() if wanted in name.lower())
        backfills = (backfill for backfill in services.reader.backfills() if wanted in backfill.id.lower())
        newest = (
            nlargest(_FOUND, backfills, key=lambda backfill: (backfill.created_at, backfill.id))
            if wanted
            else []
        )
        shown = {
            "q": q,
            "runs": runs,
            "pipelines": names[:_FOUND] if wanted else [],
            "backfills": newest,
            "datasets": datasets[:_FOUND] if wanted else [],
            "most": _FOUND,
        }
        return pages.answer(request, "search.html", shown)
