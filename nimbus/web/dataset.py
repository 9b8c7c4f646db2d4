"""Pages about datasets: the list, one dataset, and the graph of pipelines and datasets."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from fastapi import APIRouter, Query
from markupsafe import Markup
from pydantic import BaseModel, BeforeValidator, Field
from starlette.requests import Request
from starlette.responses import Response

from nimbus.api.explain.facts import active_pipelines, by_dataset
from nimbus.api.paging import CursorText, PageQuery, TagText
from nimbus.api.requests import DatasetNameText
from nimbus.api.routes.datasets import (
    DatasetModel,
    DatasetSummaryModel,
    VersionModel,
    dataset_summaries,
    list_versions,
    shown_dataset,
    version_model,
    with_given,
)
from nimbus.api.services import ApiServices
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.pipelines.filters import Filter
from nimbus.domain.pipelines.intervals import DataInterval, gaps
from nimbus.web.pages import ListOrder, Pages, SortText, none_if_empty, seconds, segment
from nimbus.web.pipeline.grid import calendar
from nimbus.web.run import graph

_DATASETS, _VERSIONS = 100, 50
_SORTED = 200
"""Limit of datasets whose records are read to sort or filter them: a record may have 100 kB."""

_PartitionFilter = Annotated[str | None, Query(max_length=100), BeforeValidator(none_if_empty)]
_Unfold = Annotated[Sequence[str], Query()]


class AskedDatasets(BaseModel):
    """The query of the list. A form sends empty fields as empty text."""

    state: Annotated[Literal["late", "fresh", "unpublished"] | None, BeforeValidator(none_if_empty)] = None
    find: Annotated[str, Field(max_length=200)] = ""
    """A part of the name."""
    tag: Annotated[TagText | None, BeforeValidator(none_if_empty)] = None
    """A tag of a pipeline that publishes it."""
    sort: SortText = None


def router(services: ApiServices, pages: Pages) -> APIRouter:
    """Build the routes over `services`."""
    routes = APIRouter()

    @routes.get("/datasets")
    def datasets(
        request: Request, asked: Annotated[AskedDatasets, Query()], cursor: CursorText = None
    ) -> Response:
        now = services.clock.now()
        shown = {
            **_listed(services, asked, PageQuery(_DATASETS, cursor), now),
            "given": asked.model_dump(),
            "now": now,
        }
        return pages.answer(request, "datasets.html", shown)

    @routes.get("/datasets/{name}")
    def dataset(
        request: Request, name: DatasetNameText, partition: _PartitionFilter = None, unfold: _Unfold = ()
    ) -> Response:
        model = shown_dataset(services, name)
        records = list(active_pipelines(services))
        spans = [DataInterval(start=span.start, end=span.end) for span in model.spans]
        shown = {
            "dataset": model,
            "now": services.clock.now(),
            "zone": (zone := _zone(records, model)),
            "days": days_of(spans, zone, model.spans_from),
            "states": dict(zip(STATES, ("published", "in part", "missing"), strict=True)),
            "partition": partition,
            **_versions(services, model, partition),
            **_drawn(records, of_dataset(name), unfold),
        }
        return pages.answer(request, "dataset.html", shown, about=next(iter(model.publishers), None))

    @routes.get("/lineage")
    def lineage(request: Request, unfold: _Unfold = ()) -> Response:
        shown = _drawn(active_pipelines(services), None, unfold)
        return pages.answer(request, "lineage.html", shown)

    return routes


def _listed(services: ApiServices, asked: AskedDatasets, query: PageQuery, now: datetime) -> dict[str, Any]:
    """A page of datasets. By name, only the records of that page are read, else those of `_SORTED`."""
    publishers = by_dataset((record, record.profile.datasets) for record in active_pipelines(services))
    where = Filter(tag=asked.tag)
    names = sorted(
        name
        for name in {*publishers, *services.reader.dataset_names()}
        if asked.find.casefold() in name.casefold()
        and (asked.tag is None or any(map(where.takes_pipeline, publishers.get(name, ()))))
    )
    order: ListOrder[DatasetSummaryModel] = ListOrder.of(
        asked.sort,
        "name",
        name=lambda dataset: (dataset.name,),
        data=lambda dataset: (seconds(dataset.newest_data), dataset.name),
        published=lambda dataset: (seconds(dataset.newest.at if dataset.newest else None), dataset.name),
        versions=lambda dataset: (dataset.published, dataset.name),
    )
    if order.sort.removeprefix("-") == "name" and asked.state is None:
        by_name = query.page(names, lambda name: (name,), newest_first=order.newest_first)
        rows, later, unsorted = dataset_summaries(services, by_name.rows, publishers), by_name.next_cursor, 0
    else:
        if asked.state in ("late", "fresh"):  # others are neither
            names = [
                name
                for name in names
                if any(name in record.profile.fresh for record in publishers.get(name, ()))
            ]
        read = dataset_summaries(services, names[:_SORTED], publishers)
        page = query.page(
            (dataset for dataset in read if asked.state in (None, _state_at(dataset, now))),
            order.key,
            newest_first=order.newest_first,
        )
        rows, later, unsorted = page.rows, page.next_cursor, len(names[_SORTED:])
    return {"datasets": rows, "later": later, "unsorted": unsorted, "most": _SORTED, "sort": order.sort}


def _state_at(dataset: DatasetSummaryModel, now: datetime) -> str | None:
    """`late` or `fresh`, as far as a pipeline says; else `unpublished` if nothing is."""
    if dataset.late_from is not None:
        return "late" if dataset.late_from <= now else "fresh"
    return None if dataset.published else "unpublished"


def _zone(records: Iterable[PipelineRecord], model: DatasetModel) -> ZoneInfo:
    """The zone of the schedule of its publisher."""
    publishers = (record for record in records if record.name in model.publishers)
    zones = [record.profile.schedule.timezone for record in publishers if record.profile.schedule is not None]
    return ZoneInfo(zones[0] if zones else "UTC")


def _versions(services: ApiServices, model: DatasetModel, partition: str | None) -> dict[str, Any]:
    """The versions of one partition, or those that were published last, which ZooKeeper has."""
    name = DatasetName(model.name)
    if partition is not None:
        page = list_versions(services, name, partition, _VERSIONS)
        return {"versions": page.versions, "is_all": page.complete, **_columns(services, page.versions)}
    known = services.reader.dataset(name)
    newest = () if known is None else known.versions[::-1]
    kept = list(map(version_model, newest[:_VERSIONS]))
    return {"versions": kept, "is_all": model.published == len(kept), **_columns(services, kept)}


def _columns(services: ApiServices, versions: Sequence[VersionModel]) -> dict[str, Any]:
    """The columns of the first version. None while history, which has them perhaps, does not answer."""
    try:
        return {"table": with_given(services, versions[0]).table if versions else None}
    except NimbusError:
        return {"table": None}


def _drawn(records: Iterable[PipelineRecord], around: str | None, unfold: Sequence[str]) -> dict[str, Any]:
    drawn = flow(records, around)
    names = {node: node[2:] for node in drawn.needs}
    kinds = {node: "pipeline" if node.startswith("p-") else "dataset" for node in drawn.needs}
    drawing = graph.kept_drawing(drawn.needs, unfold)
    svg = graph.svg(
        drawing,
        kinds,
        lambda node: f"/ui/{kinds[node]}s/{segment(names[node])}",
        lambda node: f"?{urlencode({'unfold': [*unfold, node]}, doseq=True)}",
        labels=names,
    )
    return {"svg": svg if drawn.needs else None, "left_out": drawn.left_out}


MAX_DAYS = 400
"""Limit of the days in a calendar: the last ones."""
PUBLISHED, IN_PART, MISSING = STATES = ("succeeded", "stopping", "not_run")


class Days(NamedTuple):
    """A calendar, and how many days it has of each state."""

    drawn: Markup
    counts: Counter[str]
    begin: str
    """When a day begins: with the intervals, if all of them begin at one time; empty: at midnight."""


def days_of(spans: Sequence[DataInterval], zone: tzinfo, known_from: datetime | None = None) -> Days | None:
    """The days from the first to the last that is published; None: nothing is.

    `spans`: what is published, in order; `known_from`: earlier times are not known, and are left out.
    """
    if not spans:
        return None
    start = max(spans[0].start, known_from or spans[0].start)
    times = {at.astimezone(zone).time() for span in spans for at in (span.start, span.end)}
    begin = min(times) if len(times) == 1 else time()
    ends = [_begin_of(spans[-1].end - timedelta.resolution, zone, begin, 1)]
    while len(ends) <= MAX_DAYS and ends[-1] > start:
        ends.append(_begin_of(ends[-1], zone, begin, -1))
    days = [_in_utc(DataInterval(start=first, end=end)) for end, first in pairwise(ends)]
    known = [_in_utc(span) for span in spans]
    shown = [(day.start, _state(day, known)) for day in days]
    counts = Counter(state for _, state in shown)
    return Days(calendar(shown, zone), counts, f"{begin:%H:%M}" if begin > time() else "")


def _in_utc(interval: DataInterval) -> DataInterval:
    """The same interval; times of one zone are compared fast."""
    return DataInterval(start=interval.start.astimezone(UTC), end=interval.end.astimezone(UTC))


def _begin_of(moment: datetime, zone: tzinfo, begin: time, days: int) -> datetime:
    """When the day of a moment begins, or one some days later."""
    local = moment.astimezone(zone).replace(tzinfo=None)
    date = local.date() - timedelta(days=local.time() < begin)
    return datetime.combine(date + timedelta(days=days), begin, zone)


def _state(day: DataInterval, spans: Sequence[DataInterval]) -> str:
    inside = [span for span in spans if span.start < day.end and span.end > day.start]
    if not inside:
        return MISSING
    return IN_PART if gaps(day, inside) else PUBLISHED


MAX_NODES = 150


def of_pipeline(name: PipelineName) -> str:
    """The node of a pipeline."""
    return f"p-{name}"


def of_dataset(name: DatasetName) -> str:
    """The node of a dataset."""
    return f"d-{name}"


@dataclass(frozen=True, slots=True)
class Flow:
    """A graph of pipelines and datasets, or the part of it that is nearest to one node."""

    needs: Mapping[str, list[str]]
    """For each node, those before it: a dataset's publishers, the datasets that a pipeline reads."""
    left_out: int
    """How many nodes are not in it."""


def flow(records: Iterable[PipelineRecord], around: str | None = None, most: int = MAX_NODES) -> Flow:
    """The graph of active pipelines, without the edges that close a circle of datasets.

    `around`: the node whose nearest ones are taken; None: the first ones by name.
    """
    needs: dict[str, set[str]] = {}
    for record in records:
        node = of_pipeline(record.name)
        needs[node] = {of_dataset(name) for name in record.profile.reads}
        for name in record.profile.datasets:
            needs.setdefault(of_dataset(name), set()).add(node)
        if not record.profile.reads and not record.profile.datasets:
            del needs[node]
    for read in [name for of in needs.values() for name in of]:
        needs.setdefault(read, set())  # nobody publishes it
    shown = _nearest(needs, around, most)
    return Flow(_without_circles({name: needs[name] & shown for name in shown}), len(needs) - len(shown))


def _nearest(needs: Mapping[str, set[str]], around: str | None, most: int) -> set[str]:
    beside: dict[str, set[str]] = {name: set(of) for name, of in needs.items()}
    for name, of in needs.items():
        for need in of:
            beside[need].add(name)
    shown: set[str] = set()
    for start in sorted(needs) if around is None else [around] if around in needs else []:
        queue = deque([start])
        while queue and len(shown) < most:
            if (name := queue.popleft()) not in shown:
                shown.add(name)
                queue.extend(sorted(beside[name] - shown))
        if len(shown) >= most:
            break
    return shown


def _without_circles(needs: Mapping[str, set[str]]) -> dict[str, list[str]]:
    kept: dict[str, list[str]] = {}
    left = dict(sorted(needs.items()))
    while left:
        open_needs = {name: sum(need in left for need in of) for name, of in left.items()}
        fewest = min(open_needs.values())
        ready = [name for name, count in open_needs.items() if count == fewest]
        for name in ready if fewest == 0 else ready[:1]:
            kept[name] = sorted(need for need in left.pop(name) if need in kept)
    return kept
