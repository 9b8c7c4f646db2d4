"""Pages about the cluster as a whole, about workers, and about the schedulers and their election."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from heapq import nsmallest
from itertools import islice
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, BackgroundTasks, Query
from pydantic import BeforeValidator
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api import views
from nimbus.api.explain.facts import by_dataset
from nimbus.api.models import StatusModel, WorkerModel
from nimbus.api.paging import CursorText, PageQuery
from nimbus.api.requests import CommandIdText
from nimbus.api.routes.cluster import cluster_status, known_workers
from nimbus.api.routes.limits import known_shares
from nimbus.api.routes.terms import TermModel, known_terms, succession, term_model
from nimbus.api.seen import SeenReader
from nimbus.api.services import ApiServices
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.datasets import first_late_from, newest_data
from nimbus.domain.ids import CommandId, DatasetName, PipelineName
from nimbus.domain.run import ListedRun
from nimbus.domain.terms import EndCause
from nimbus.web.home.attention import MOST, Facts, Failing, failing_pipelines, notices, why_failed
from nimbus.web.home.day import DAY, Day
from nimbus.web.home.timeline import Axis, head, lane, load, said
from nimbus.web.pages import ListOrder, Pages, SortText, none_if_empty
from nimbus.web.pipeline.foresight import due, following, upcoming

_WORKERS = 200
"""Limit of workers in one page."""
_FRESH = 100
"""Limit of datasets with `fresh` that are read for notices."""
_LANES, _FIRES, _LOADS = 30, 12, 48
"""Limits of pipelines on the time axis and of their fires to come, and number of figures of slots on it."""
_TERMS = 40
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

    @routes.get("/")
    def cluster(request: Request, after: BackgroundTasks, hours: Literal["1", "6", "24"] = "24") -> Response:
        health, reader, now = services.health, services.reader, services.clock.now()
        day: Day = request.app.state.api.state.day
        day.begin(now)
        after.add_task(day.look, now)
        runs = sorted(day.seen(reader).values(), key=lambda run: (run.created_at, run.id), reverse=True)
        status, pipelines = cluster_status(services), reader.pipelines()
        participants = views.participants_model(health.participants(), reader.schedulers(), health.leader())
        facts = Facts(
            now=now,
            status=status,
            participants=participants.participants,
            workers=known_workers(services),
            pipelines=pipelines,
            due={record.name: at for record in pipelines if (at := due(record)) is not None},
            late_from=_late_from(services, pipelines),
            backfills=reader.backfills(),
            failing=(failing := failing_pipelines(runs, now)),
            causes=_causes(services, day, failing),
        )
        shown = {
            "notices": notices(facts),
            "status": status,
            "participants": participants.participants,
            "backfills": [
                (state.value, count)
                for state, count in sorted(Counter(one.state for one in facts.backfills).items())
                if not state.is_over
            ],
            "hours": int(hours),
            "since": None if day.since is None or day.since <= now - DAY else day.since,
            "zone": (zone := pages.page_times(request).zone()),
            **_timeline(day, status, pipelines, runs, now, Axis.of(now, int(hours), zone)),
        }
        return pages.answer(request, "cluster.html", shown)

    @routes.get("/workers")
    def workers(
        request: Request,
        state: _WorkerState = None,
        find: Annotated[str, Query(max_length=200)] = "",
        sort: SortText = None,
        cursor: CursorText = None,
    ) -> Response:
        found = known_workers(services)
        fitting = (one for one in found if state in (None, worker_state(one)) and _has(one, find))
        order: ListOrder[WorkerModel] = ListOrder.of(
            sort,
            "id",
            id=lambda one: (one.id,),
            slots=lambda one: (one.busy, one.slots, one.id),
            load=lambda one: (int(100 * one.load_average), one.id),
            memory=lambda one: (one.memory_available_bytes, one.id),
            reported=lambda one: (int(one.reported_at.timestamp()), one.id),
        )
        page = PageQuery(_WORKERS, cursor).page(fitting, order.key, newest_first=order.newest_first)
        shown = {
            "workers": page.rows,
            "state_of": worker_state,
            "states": WORKER_STATES,
            "given": {"state": state, "find": find, "sort": sort},
            "sort": order.sort,
            "slots": sum(one.slots for one in found if not one.draining),
            "busy": sum(one.busy for one in found),
            "count": len(found),
            "teams": known_shares(services),
            "is_later_page": cursor is not None,
            "later": page.next_cursor,
        }
        return pages.answer(request, "workers.html", shown)

    @routes.get("/election")
    def election(
        request: Request, command: CommandIdText | None = None, cursor: CursorText = None
    ) -> Response:
        health, schedulers = services.health, services.reader.schedulers()
        found = views.participants_model(health.participants(), schedulers, health.leader())
        page, complete = known_terms(services, PageQuery(_TERMS, cursor))
        terms = [term_model(term) for term in page.rows]
        others = [one for one in found.participants if not one.is_leader and one.queue_position is not None]
        shown = {
            "command": command,
            "decided": None if command is None else services.commands.outcome(CommandId(command)),
            "leader": found.leader,
            "participants": found.participants,
            "next": others[0] if others else None,
            "ready": [one.id for one in others if one.ready],
            "succession": succession(services),
            "terms": terms,
            "terms_complete": complete,
            "later_terms": page.next_cursor,
            "is_later_page": cursor is not None,
            "cause": cause,
        }
        return pages.answer(request, "election.html", shown)

    return routes


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


def _late_from(services: ApiServices, pipelines: Iterable[PipelineRecord]) -> dict[DatasetName, datetime]:
    """When datasets become late, of as many as one page reads."""
    active = (one for one in pipelines if one.state is not PipelineState.INACTIVE)
    watchers = by_dataset((one, one.profile.fresh) for one in active)
    names = sorted(watchers)[:_FRESH]
    known = services.reader.datasets(names)
    found = {name: first_late_from(watchers[name], name, newest_data(known.get(name))) for name in names}
    return {name: at for name, at in found.items() if at is not None}


def _causes(services: ApiServices, day: Day, failing: Sequence[Failing]) -> dict[str, str]:
    """Why these runs failed, by run: the first task that did."""
    wanted = [one.newest.id for one in failing[:MOST]]
    known = [day.failed[run] for run in wanted if run in day.failed]
    others = services.reader.runs(run for run in wanted if run not in day.failed)
    found = [*cast("SeenReader", services.reader).shown(known), *others.values()]
    return {run.id: why_failed(run) for run in found}


def _timeline(
    day: Day,
    status: StatusModel,
    pipelines: Iterable[PipelineRecord],
    runs: Iterable[ListedRun],
    now: datetime,
    axis: Axis,
) -> dict[str, Any]:
    """The pipelines that had runs, newest runs first, then those that fire next; in the order of names."""
    of_it: dict[PipelineName, list[ListedRun]] = {}
    for run in runs:
        if run.finished_at is None or run.finished_at > axis.begin:
            of_it.setdefault(run.pipeline, []).append(run)
    fires = {record.name: at for record in pipelines if (at := upcoming(record, now)) is not None}
    shown = list(islice(of_it, _LANES))
    others = (name for name in fires if name not in of_it)
    shown += nsmallest(_LANES - len(shown), others, key=lambda name: (fires[name], name))
    records = {record.name: record for record in pipelines if record.name in shown}
    lanes = []
    for name in sorted(shown):
        to_come = following(records[name], now, _FIRES) if fires.get(name, axis.end) < axis.end else ()
        drawn = lane(of_it.get(name, ()), to_come, axis)
        lanes.append((name, drawn, said(of_it[name]) if name in of_it else "", fires.get(name)))
    begin, step = axis.begin, (axis.now - axis.begin) / _LOADS
    known = 0.0 if day.since is None or day.since < begin else axis.at(day.since)
    return {
        "axis": head(axis),
        "load": load(day.load(begin, step, _LOADS), status.slots, known),
        "lanes": lanes,
        "more_lanes": len(of_it.keys() - set(shown)),
    }


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
