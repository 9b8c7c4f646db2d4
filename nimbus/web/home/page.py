"""The home page: what needs attention, who leads, and a day of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from heapq import nsmallest
from itertools import islice
from typing import Any, Literal, cast

from fastapi import APIRouter, BackgroundTasks
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api import views
from nimbus.api.explain.facts import by_dataset
from nimbus.api.models import StatusModel
from nimbus.api.routes.cluster import cluster_status, known_workers
from nimbus.api.seen import SeenReader
from nimbus.api.services import ApiServices
from nimbus.domain.data.datasets import first_late_from, newest_data
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.runs.run import ListedRun
from nimbus.web.home.attention import MOST, Facts, Failing, failing_pipelines, notices, why_failed
from nimbus.web.home.day import DAY, Day
from nimbus.web.home.timeline import Axis, head, lane, load, said
from nimbus.web.pages import Pages
from nimbus.web.pipeline.foresight import due, following, upcoming

_FRESH = 100
"""Limit of datasets with `fresh` that are read for notices."""
_LANES, _FIRES, _LOADS = 30, 12, 48
"""Limits of pipelines on the time axis and of their fires to come, and number of figures of slots on it."""


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
        pipelines, schedulers = reader.pipelines(), reader.schedulers()
        status = cluster_status(services, schedulers)
        participants = views.participants_model(health.participants(), schedulers, health.leader())
        facts = Facts(
            now=now,
            status=status,
            participants=participants.participants,
            workers=known_workers(services, schedulers),
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
                for state, count in sorted(Counter(backfill.state for backfill in facts.backfills).items())
                if not state.is_over
            ],
            "hours": int(hours),
            "since": None if day.since is None or day.since <= now - DAY else day.since,
            "zone": (zone := pages.page_times(request).zone()),
            **_timeline(day, status, pipelines, runs, now, Axis.of(now, int(hours), zone)),
        }
        return pages.answer(request, "cluster.html", shown)

    return routes


def _late_from(services: ApiServices, pipelines: Iterable[PipelineRecord]) -> dict[DatasetName, datetime]:
    """When datasets become late, of as many as one page reads."""
    active = (record for record in pipelines if record.state is not PipelineState.INACTIVE)
    watchers = by_dataset((record, record.profile.fresh) for record in active)
    names = sorted(watchers)[:_FRESH]
    known = services.reader.datasets(names)
    times = {name: first_late_from(watchers[name], name, newest_data(known.get(name))) for name in names}
    return {name: at for name, at in times.items() if at is not None}


def _causes(services: ApiServices, day: Day, failing: Sequence[Failing]) -> dict[str, str]:
    """Why these runs failed, by run: the first task that did."""
    wanted = [pipeline.newest.id for pipeline in failing[:MOST]]
    known = [day.failed[run] for run in wanted if run in day.failed]
    others = services.reader.runs(run for run in wanted if run not in day.failed)
    runs = [*cast("SeenReader", services.reader).shown(known), *others.values()]
    return {run.id: why_failed(run) for run in runs}


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
