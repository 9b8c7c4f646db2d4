"""When a dataset is late: nothing newer was published for longer than its pipeline says. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from nimbus.domain.catalog import PipelineRecord
from nimbus.domain.datasets import Dataset, end_of
from nimbus.domain.ids import DatasetName


def newest_data(dataset: Dataset | None) -> datetime | None:
    """The end of the last interval; of a dataset without intervals, its last publication. None: nothing.

    A withdrawal is no publication: its content is as old as it was.
    """
    if dataset is None:
        return None
    if (last := dataset.last) is not None:
        return end_of(last)[0]
    return max((version.made_at for version in dataset.versions), default=None)


def late_from(record: PipelineRecord, name: DatasetName, newest: datetime | None) -> datetime | None:
    """When a dataset becomes late; None: never, its pipeline does not say `fresh`.

    Args:
        record: The pipeline that publishes it.
        name: The dataset.
        newest: As `newest_data` says; None: the time counts from the last change of the pipeline.
    """
    fresh: timedelta | None = record.profile.fresh.get(name)
    return None if fresh is None else (newest or record.updated_at) + fresh


def first_late_from(
    records: Iterable[PipelineRecord], name: DatasetName, newest: datetime | None
) -> datetime | None:
    """As `late_from`, of the pipeline by which the dataset becomes late first."""
    found = (late_from(record, name, newest) for record in records)
    return min((at for at in found if at is not None), default=None)
