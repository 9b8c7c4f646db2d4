"""Datasets: what tasks have published, and who publishes it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from nimbus.api.finding import publishers_of
from nimbus.api.models_datasets import (
    DatasetModel,
    DatasetsModel,
    DatasetSummaryModel,
    SpanModel,
    VersionsModel,
)
from nimbus.api.paging import Paging
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import DatasetNameText
from nimbus.api.services import ApiServices
from nimbus.api.views import version_model
from nimbus.domain.datasets import Dataset
from nimbus.domain.ids import DatasetName, PipelineName

MOST_SHOWN = 1000
"""Limit of the versions in one answer."""


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["datasets"], prefix=f"{prefix}/datasets")

    @routes.get("")
    def datasets(paging: Paging) -> DatasetsModel:
        """All datasets, by name."""
        publishers = publishers_of(services)
        found: dict[DatasetName, Dataset | None] = dict.fromkeys(publishers)
        found |= {dataset.name: dataset for dataset in services.reader.datasets()}
        page = paging.page(found, lambda name: (name,))
        return DatasetsModel(
            datasets=[_summary(name, found[name], publishers.get(name, [])) for name in page.rows],
            next_cursor=page.next_cursor,
            at_least=page.at_least,
        )

    @routes.get("/{name}")
    def dataset(name: DatasetNameText) -> DatasetModel:
        """One dataset: who publishes it, and what is published."""
        found, publishers = _known(services, DatasetName(name))
        return DatasetModel(
            **dict(_summary(DatasetName(name), found, publishers)),
            spans=[] if found is None else [SpanModel(start=one.start, end=one.end) for one in found.spans],
            spans_from=None if found is None else found.spans_from,
        )

    @routes.get("/{name}/versions")
    def versions(
        name: DatasetNameText,
        partition: Annotated[str | None, Query(max_length=100)] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_SHOWN)] = 100,
    ) -> VersionsModel:
        """The versions of a dataset, or of one partition."""
        found, _ = _known(services, DatasetName(name))
        kept = () if found is None else found.versions
        shown = {
            (one.partition, one.number): one
            for one in (*kept, *services.history.versions(DatasetName(name), limit + 1, partition))
            if partition in (None, one.partition)
        }
        ordered = sorted(shown.values(), key=lambda one: (one.partition, -one.number))
        return VersionsModel(
            dataset=name, versions=list(map(version_model, ordered[:limit])), complete=len(ordered) <= limit
        )

    return routes


def _known(services: ApiServices, name: DatasetName) -> tuple[Dataset | None, list[PipelineName]]:
    found, publishers = services.reader.dataset(name), publishers_of(services).get(name, [])
    if found is None and not publishers:
        raise NotFoundError(
            "unknown_dataset", f"there is no dataset {name}: `nimbus dataset list` shows all of them."
        )
    return found, publishers


def _summary(name: DatasetName, found: Dataset | None, publishers: list[PipelineName]) -> DatasetSummaryModel:
    return DatasetSummaryModel(
        name=name,
        partition=None if found is None else found.partition,
        publishers=list(publishers),
        published=0 if found is None else found.published,
        newest=None if found is None or found.newest is None else version_model(found.newest),
    )
