"""Datasets: what tasks have published, and who publishes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Annotated, Any

from fastapi import APIRouter, Query

from nimbus.api.explain.facts import active_pipelines, by_dataset, publishers_of
from nimbus.api.models import CommandModel, Model, PageModel, of
from nimbus.api.paging import CursorText, PageQuery, Paging, decoded, encoded, unknown_cursor
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import DatasetNameText, NewVersionBody, ReasonBody, WithdrawBody
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED, Submit
from nimbus.domain.commands import PublishDataset, RemoveDataset, WithdrawDataset
from nimbus.domain.data.datasets import Dataset, first_grant, first_late_from, newest_data, read_grant
from nimbus.domain.data.publications import MAX_VALUE_BYTES, Change, Partitioning, Table, Version
from nimbus.domain.ids import AttemptId, DatasetName
from nimbus.domain.pipelines.catalog import PipelineRecord


class OutsideModel(Model):
    """Data that no task made."""

    uri: str
    digest: str | None
    """`sha256:` and 64 hexadecimal digits; null: unverified."""
    value: Any
    """What its sender gave to readers."""


@of(Change, leave_out=("made_at",))
class ChangeModel(Model):
    """The command that made a version."""


@of(Table)
class TableModel(Model):
    """At most 100 columns of a table: of the first Parquet file in its folder `data`, or in its output."""


class VersionModel(Model):
    """One published output, or data from outside."""

    partition: str
    """An interval, `2026-03-01T00:00:00Z_2026-03-02T00:00:00Z`; or a key; or empty: the whole."""
    number: int
    """Of its run: of two versions of a partition, that with the larger number is shown."""
    run: str
    """Empty: it came from outside, so there are no task, source and output."""
    task: str
    """The task that published it."""
    source: str
    """The attempt that made the output: `run.task.number`."""
    output: str | None
    """Reference of the output, relative to the workers' folder of data or their bucket."""
    at: datetime
    """When its task succeeded, or the command was done."""
    outside: OutsideModel | None
    """The data, if no task made them."""
    change: ChangeModel | None
    """The command that made the version; null: its run did."""
    result: dict[str, Any] | None = None
    """Of the attempt in `source`, if it was asked for, and has 512 bytes at most."""
    table: TableModel | None = None
    """The same: its columns; null: it is no table that the worker could read."""
    item: Any = None
    """Of a run's read with `of`: the item of the child run that published it."""


class SpanModel(Model):
    """A time for which all intervals are published."""

    start: datetime
    end: datetime


class DatasetSummaryModel(Model):
    """One dataset."""

    name: str
    partition: Partitioning | None
    """How it is divided; null while nothing is published."""
    publishers: list[str]
    """Pipelines whose active releases publish it."""
    published: int
    """Number of versions that were ever published."""
    newest: VersionModel | None
    """The version that was published last; null: none yet."""
    newest_data: datetime | None
    """The end of the last interval; of a dataset without intervals, its last publication."""
    late_from: datetime | None
    """When it is or becomes late without newer data; null: no pipeline says how `fresh` it must be."""


class DatasetModel(DatasetSummaryModel):
    """One dataset in full."""

    readers: list[str]
    """Pipelines whose active releases read it."""
    may_read: list[str] | None
    """Principals and teams that may read it, besides its owner and admins; null: everybody."""
    spans: list[SpanModel]
    """Of a dataset by interval: the times that are published, in order."""
    spans_from: datetime | None
    """Earlier spans are not known; null: all are."""


class DatasetsModel(PageModel):
    """Datasets, by name: those that were ever published, and those that an active release publishes."""

    datasets: list[DatasetSummaryModel]


class VersionsModel(Model):
    """Versions of a dataset: those of ended runs are listed when history has them."""

    dataset: str
    versions: list[VersionModel]
    """The last publication first; those of one partition by number, the largest first."""
    complete: bool
    """False: there are more than the limit."""
    next_cursor: str | None
    """`cursor` of the next versions; null: there are none."""


def version_model(version: Version) -> VersionModel:
    """One version of a dataset."""
    outside = version.outside
    digest = f"sha256:{outside.sha256}" if outside is not None and outside.sha256 else None
    return VersionModel.from_records(
        version,
        source=str(version.source) if version.run else "",
        outside=None if outside is None else OutsideModel.from_records(outside, digest=digest),
    )


MAX_RESULTS = 20
"""How many versions of an answer have results: each may be read from storage."""
MAX_SHOWN = 1000
_NUMBERS = range(1 << 63)


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["datasets"], prefix=f"{prefix}/datasets")

    @routes.get("")
    def datasets(paging: Paging) -> DatasetsModel:
        """Datasets by name: 100, if no limit is given."""
        paging.limit = paging.limit or 100
        return list_datasets(services, paging)

    @routes.get("/{name}")
    def dataset(name: DatasetNameText) -> DatasetModel:
        """One dataset: who publishes and reads it, and what is published."""
        return shown_dataset(services, name)

    @routes.get("/{name}/versions")
    def versions(
        name: DatasetNameText,
        partition: Annotated[str | None, Query(max_length=100)] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_SHOWN)] = 100,
        cursor: CursorText = None,
        results: Annotated[
            bool, Query(description="With results and columns, of the first 20 versions.")
        ] = False,
    ) -> VersionsModel:
        """The versions of a dataset, the last publication first; or of one partition, the shown one first."""
        page = list_versions(services, name, partition, limit, _place(cursor))
        first, rest = page.versions[: MAX_RESULTS if results else 0], page.versions
        told = [with_given(services, version) for version in first]
        return page.model_copy(update={"versions": [*told, *rest[len(first) :]]})

    @routes.post("/{name}/versions", **ACCEPTED)
    async def publish(name: DatasetNameText, body: NewVersionBody, submit: Submit) -> CommandModel:
        """Publish a version whose data no task made. Repeat it safely with an `Idempotency-Key`."""
        return await submit(lambda: published(name, body))

    @routes.post("/{name}/remove", **ACCEPTED)
    async def remove(name: DatasetNameText, body: ReasonBody, submit: Submit) -> CommandModel:
        """Remove a dataset with its list of versions. Refused while an active release names it."""
        return await submit(RemoveDataset(dataset=name, reason=body.reason))

    @routes.post("/{name}/withdraw", **ACCEPTED)
    async def withdraw(name: DatasetNameText, body: WithdrawBody, submit: Submit) -> CommandModel:
        """Publish the content before the newest version of a partition again."""
        return await submit(WithdrawDataset(dataset=name, **body.model_dump()))

    return routes


def list_datasets(services: ApiServices, query: PageQuery) -> DatasetsModel:
    """A page of datasets. Only their records are read."""
    publishers = by_dataset((record, record.profile.datasets) for record in active_pipelines(services))
    page = query.page({*publishers, *services.reader.dataset_names()}, lambda name: (name,))
    return DatasetsModel(datasets=dataset_summaries(services, page.rows, publishers), **page.rest)


def dataset_summaries(
    services: ApiServices,
    names: Sequence[DatasetName],
    publishers: Mapping[DatasetName, Sequence[PipelineRecord]],
) -> list[DatasetSummaryModel]:
    """Some datasets. Reads the record of each. `publishers`: of all datasets."""
    records = services.reader.datasets(names)
    return [_summary(name, records.get(name), publishers.get(name, ())) for name in names]


def shown_dataset(services: ApiServices, name: DatasetName) -> DatasetModel:
    """One dataset. Raises ObjectNotFoundError: nobody publishes it, or ever did."""
    dataset, records = services.reader.dataset(name), list(active_pipelines(services))
    publishers = [record for record in records if name in record.profile.datasets]
    if dataset is None and not publishers:
        raise ObjectNotFoundError(
            "unknown_dataset", f"there is no dataset {name}: `nimbus dataset list` shows all of them."
        )
    grant = read_grant(name, dataset, services.reader.pipeline) if dataset else first_grant(name, records)
    return DatasetModel(
        **dict(_summary(name, dataset, publishers)),
        may_read=None if grant is None else list(grant.readers),
        readers=[record.name for record in records if name in record.profile.reads],
        spans=[] if dataset is None else [SpanModel.model_validate(span) for span in dataset.spans],
        spans_from=None if dataset is None else dataset.spans_from,
    )


def published(name: DatasetName, body: NewVersionBody) -> PublishDataset:
    """The command of a body. Raises RefusedError if its partition is not clear."""
    return PublishDataset(
        dataset=name,
        uri=body.uri,
        partition=body.partition(),
        sha256=(body.digest or "").removeprefix("sha256:"),
        value=body.value,
    )


def list_versions(
    services: ApiServices,
    name: DatasetName,
    partition: str | None,
    limit: int,
    before: int | None = None,
) -> VersionsModel:
    """Versions of a dataset, or of one partition. Raises ObjectNotFoundError: see `shown_dataset`.

    `before`: sequence, or of a partition the number, of the last version of the page before.
    """
    dataset = services.reader.dataset(name)
    if dataset is None and name not in publishers_of(services):
        shown_dataset(services, name)
    kept = () if dataset is None else (*dataset.versions, *dataset.unstored)
    place = attrgetter("sequence" if partition is None else "number")
    shown = {
        (version.partition, version.number): version
        for version in (*kept, *services.history.versions(name, limit + 1, partition, before))
        if partition in (None, version.partition) and (before is None or place(version) < before)
    }
    ordered = sorted(shown.values(), key=place, reverse=True)
    page, is_last = ordered[:limit], len(ordered) <= limit
    return VersionsModel(
        dataset=name,
        versions=list(map(version_model, page)),
        complete=is_last,
        next_cursor=None if is_last else encoded((place(page[-1]),)),
    )


def with_given(services: ApiServices, version: VersionModel) -> VersionModel:
    """A version with the result and the columns of the attempt that made it."""
    if not version.source:
        return version
    source = AttemptId.parse(version.source)
    slots = services.reader.slots([source]).get(source)
    if slots is not None and slots.end is not None:
        result, table = slots.end.result, slots.end.table
    else:
        kept = services.history.given(source.run)
        result, table = kept.results.get(source.task), kept.tables.get(source.task)
    if result is not None and len(json.dumps(result)) > MAX_VALUE_BYTES:
        result = None
    shown = None if table is None else TableModel.model_validate(table)
    return version.model_copy(update={"result": result, "table": shown})


def _place(cursor: str | None) -> int | None:
    match decoded(cursor):
        case None:
            return None
        case (int(place),) if place in _NUMBERS:
            return place
        case _:
            raise unknown_cursor()


def _summary(
    name: DatasetName, dataset: Dataset | None, publishers: Sequence[PipelineRecord]
) -> DatasetSummaryModel:
    newest = newest_data(dataset)
    return DatasetSummaryModel(
        name=name,
        partition=None if dataset is None else dataset.partition,
        publishers=[record.name for record in publishers],
        published=0 if dataset is None else dataset.published,
        newest=None if dataset is None or dataset.newest is None else version_model(dataset.newest),
        newest_data=newest,
        late_from=first_late_from(publishers, name, newest),
    )
