"""Datasets: what tasks have published, and who publishes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated

from fastapi import APIRouter, Query

from nimbus.api.explain.facts import active_pipelines, by_dataset, publishers_of
from nimbus.api.models import CommandModel
from nimbus.api.models_datasets import (
    DatasetModel,
    DatasetsModel,
    DatasetSummaryModel,
    SpanModel,
    TableModel,
    VersionModel,
    VersionsModel,
)
from nimbus.api.paging import CursorText, PageQuery, Paging, decoded, encoded, unknown_cursor
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import DatasetNameText, NewVersionBody, ReasonBody, WithdrawBody
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Submit
from nimbus.api.views import version_model
from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.commands import PublishDataset, RemoveDataset, WithdrawDataset
from nimbus.domain.datasets import Dataset, first_grant, first_late_from, newest_data, read_grant
from nimbus.domain.ids import AttemptId, DatasetName
from nimbus.domain.publications import MOST_VALUE_BYTES

MOST_RESULTS = 20
"""How many versions of an answer have results: each may be read from storage."""
MOST_SHOWN = 1000
"""Limit of the versions in one answer."""
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
        return shown_dataset(services, DatasetName(name))

    @routes.get("/{name}/versions")
    def versions(
        name: DatasetNameText,
        partition: Annotated[str | None, Query(max_length=100)] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_SHOWN)] = 100,
        cursor: CursorText = None,
        results: Annotated[
            bool, Query(description="With results and columns, of the first 20 versions.")
        ] = False,
    ) -> VersionsModel:
        """The versions of a dataset, the last publication first; or of one partition, the shown one first."""
        found = list_versions(services, DatasetName(name), partition, limit, _place(cursor))
        first, rest = found.versions[: MOST_RESULTS if results else 0], found.versions
        told = [with_given(services, one) for one in first]
        return found.model_copy(update={"versions": [*told, *rest[len(first) :]]})

    @routes.post("/{name}/versions", status_code=202, responses=ACCEPTED_RESPONSES)
    async def publish(name: DatasetNameText, body: NewVersionBody, submit: Submit) -> CommandModel:
        """Publish a version whose data no task made. Repeat it safely with an `Idempotency-Key`."""
        return await submit(lambda: published(name, body))

    @routes.post("/{name}/remove", status_code=202, responses=ACCEPTED_RESPONSES)
    async def remove(name: DatasetNameText, body: ReasonBody, submit: Submit) -> CommandModel:
        """Remove a dataset with its list of versions. Refused while an active release names it."""
        return await submit(RemoveDataset(dataset=DatasetName(name), reason=body.reason))

    @routes.post("/{name}/withdraw", status_code=202, responses=ACCEPTED_RESPONSES)
    async def withdraw(name: DatasetNameText, body: WithdrawBody, submit: Submit) -> CommandModel:
        """Publish the content before the newest version of a partition again."""
        return await submit(
            WithdrawDataset(
                dataset=DatasetName(name), partition=body.partition, number=body.number, reason=body.reason
            )
        )

    return routes


def list_datasets(services: ApiServices, query: PageQuery) -> DatasetsModel:
    """A page of datasets. Only their records are read."""
    publishers = by_dataset((one, one.profile.datasets) for one in active_pipelines(services))
    page = query.page({*publishers, *services.reader.dataset_names()}, lambda name: (name,))
    return DatasetsModel(
        datasets=dataset_summaries(services, page.rows, publishers),
        next_cursor=page.next_cursor,
        at_least=page.at_least,
    )


def dataset_summaries(
    services: ApiServices,
    names: Sequence[DatasetName],
    publishers: Mapping[DatasetName, Sequence[PipelineRecord]],
) -> list[DatasetSummaryModel]:
    """Some datasets. Reads the record of each. `publishers`: of all datasets."""
    records = services.reader.datasets(names)
    return [_summary(name, records.get(name), publishers.get(name, ())) for name in names]


def shown_dataset(services: ApiServices, name: DatasetName) -> DatasetModel:
    """One dataset. Raises NotFoundError: nobody publishes it, or ever did."""
    found, records = services.reader.dataset(name), list(active_pipelines(services))
    publishers = [one for one in records if name in one.profile.datasets]
    if found is None and not publishers:
        raise NotFoundError(
            "unknown_dataset", f"there is no dataset {name}: `nimbus dataset list` shows all of them."
        )
    grant = read_grant(name, found, services.reader.pipeline) if found else first_grant(name, records)
    return DatasetModel(
        **dict(_summary(name, found, publishers)),
        may_read=None if grant is None else list(grant.readers),
        readers=[one.name for one in records if name in one.profile.reads],
        spans=[] if found is None else [SpanModel(start=one.start, end=one.end) for one in found.spans],
        spans_from=None if found is None else found.spans_from,
    )


def published(name: str, body: NewVersionBody) -> PublishDataset:
    """The command of a body. Raises RefusedError if its partition is not clear."""
    return PublishDataset(
        dataset=DatasetName(name),
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
    """Versions of a dataset, or of one partition. Raises NotFoundError: see `shown_dataset`.

    `before`: sequence, or of a partition the number, of the last version of the page before.
    """
    found = services.reader.dataset(name)
    if found is None and name not in publishers_of(services):
        shown_dataset(services, name)
    kept = () if found is None else (*found.versions, *found.unstored)
    place = attrgetter("sequence" if partition is None else "number")
    shown = {
        (one.partition, one.number): one
        for one in (*kept, *services.history.versions(name, limit + 1, partition, before))
        if partition in (None, one.partition) and (before is None or place(one) < before)
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
    if result is not None and len(json.dumps(result)) > MOST_VALUE_BYTES:
        result = None
    shown = None if table is None else TableModel(columns=dict(table.columns), more=table.more)
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
    name: DatasetName, found: Dataset | None, publishers: Sequence[PipelineRecord]
) -> DatasetSummaryModel:
    newest = newest_data(found)
    return DatasetSummaryModel(
        name=name,
        partition=None if found is None else found.partition,
        publishers=[one.name for one in publishers],
        published=0 if found is None else found.published,
        newest=None if found is None or found.newest is None else version_model(found.newest),
        newest_data=newest,
        late_from=first_late_from(publishers, name, newest),
    )
