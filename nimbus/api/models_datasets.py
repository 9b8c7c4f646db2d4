"""Models of answers about datasets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from nimbus.api.models import Model, PageModel
from nimbus.domain.publications import Partitioning


class OutsideModel(Model):
    """Data that no task made."""

    uri: str
    digest: str | None
    """`sha256:` and 64 hexadecimal digits; null: unverified."""
    value: Any
    """What its sender gave to readers."""


class ChangeModel(Model):
    """The command that made a version."""

    command: str
    by: str
    reason: str
    withdrew: int
    """Of a withdrawal: number of the version that was wrong; else 0."""
    restored: int
    """Of a withdrawal: number of the version whose content this is; else 0."""


class TableModel(Model):
    """The columns of a published table: of the first Parquet file in its folder `data`, or in its output."""

    columns: dict[str, str]
    """Types as in Spark SQL, by name; `partition`: only the names of folders have it. At most 100."""
    more: int
    """How many more there are."""


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
