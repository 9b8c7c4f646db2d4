"""Who may read a dataset, if the pipeline that publishes it limits its readers. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nimbus.domain.access import AccessDeniedError, AccessRole, Principal
from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.datasets import Dataset
from nimbus.domain.ids import DatasetName, PipelineName


@dataclass(frozen=True, slots=True)
class ReadGrant:
    """The limit of a dataset's readers."""

    dataset: DatasetName
    pipeline: PipelineName
    """The pipeline that says who may read it."""
    owner: str | None
    """Of that pipeline. None: it belongs to admins."""
    readers: tuple[str, ...]
    """Principals and teams that may read it, besides the owner and admins."""

    def check_pipeline(self, name: PipelineName, owner: str | None) -> None:
        """Raise AccessDeniedError if a pipeline may not read. `owner`: None, it belongs to admins."""
        if owner is not None and owner not in (self.owner, *self.readers):
            raise self._denied(f"pipeline {name}, which belongs to {owner},", owner)

    def check_principal(self, principal: Principal) -> None:
        """Raise AccessDeniedError if a principal may not read."""
        is_admin = principal.role is AccessRole.ADMIN
        if not is_admin and not any(principal.owns(name) for name in (self.owner, *self.readers)):
            raise self._denied(principal.name, principal.name)

    def _denied(self, who: str, name: str) -> AccessDeniedError:
        return AccessDeniedError(
            "not_reader",
            f"{who} may not read dataset {self.dataset}: pipeline {self.pipeline} limits its readers. "
            f"{self.owner or 'An admin'} can add {name} to datasets.{self.dataset}.readers there, and "
            "activate that release.",
        )


def read_grant(
    name: DatasetName, dataset: Dataset | None, pipeline: Callable[[PipelineName], PipelineRecord | None]
) -> ReadGrant | None:
    """The limit of a published dataset's readers; None: everybody may read it, or nothing is published.

    The active release of the pipeline that published last says it, as long as it has the dataset; then the
    release that was active at the last publication, and the owner of that time, because another pipeline may
    have the name of a removed one.
    """
    if dataset is None:
        return None
    record, readers, owner = pipeline(dataset.pipeline), dataset.readers, dataset.owner
    if record is not None and _has(record, name):
        readers, owner = record.profile.readers.get(name), record.owner
    return None if readers is None else ReadGrant(name, dataset.pipeline, owner, readers)


def first_grant(name: DatasetName, records: Iterable[PipelineRecord]) -> ReadGrant | None:
    """The limit of the readers of a dataset of which nothing is published yet."""
    for record in records:
        if _has(record, name) and (readers := record.profile.readers.get(name)) is not None:
            return ReadGrant(name, record.name, record.owner, readers)
    return None


def _has(record: PipelineRecord, name: DatasetName) -> bool:
    return record.state is not PipelineState.INACTIVE and name in record.profile.datasets
