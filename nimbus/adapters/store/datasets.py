"""Datasets, and what is due for each pipeline that starts by data: one compressed record each."""

from __future__ import annotations

import sys
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping
from datetime import UTC, datetime
from typing import Generic, TypeVar

from nimbus import records
from nimbus.adapters.store.calls import Calls, readable_record
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation, put
from nimbus.domain.data.datasets import Dataset
from nimbus.domain.data.publications import Partitioning
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.pipeline import DataStart
from nimbus.domain.starts.due import Due
from nimbus.domain.writes import PutDataset, PutDue, RemoveDatasetRecord
from nimbus.records import Codec, UnreadableRecordError

T = TypeVar("T")
_LARGEST = 8 << 20
"""Limit of a record after decompression, in bytes."""


class Compressed(Generic[T]):
    """A codec around another one."""

    def __init__(self, plain: Codec[T]) -> None:
        self._plain = plain

    def encode(self, record: T) -> bytes:
        return zlib.compress(self._plain.encode(record))

    def decode(self, data: bytes, place: str) -> T:
        unfolding = zlib.decompressobj()
        try:
            plain = unfolding.decompress(data, _LARGEST)
        except zlib.error as exc:
            raise UnreadableRecordError(place, str(exc)) from exc
        return self._plain.decode(plain, place)


MAX_DECODED = 500

CODEC = Compressed(records.DATASET)
"""40 versions take about 3 kB."""


def change(paths: Paths, write: PutDataset | RemoveDatasetRecord) -> Operation:
    """The operation that stores or removes a dataset."""
    path = paths.dataset(write.dataset.name)
    if isinstance(write, RemoveDatasetRecord):
        return Operation("delete", path)
    return put(path, CODEC.encode(write.dataset), is_new=write.before is None)


class Datasets(MutableMapping[DatasetName, Dataset]):
    """Datasets of the leader by name. Only those that were used last are decoded.

    A decoded one with 40 versions and 256 spans takes 150 kB instead of 1 to 5 kB, and 1 ms of a take-over.

    An unreadable record is logged, and counts as one without versions, which the next publication replaces:
    otherwise no task could succeed that publishes it. Earlier versions are then looked up in history.
    """

    def __init__(self, place: str, nodes: Iterable[tuple[str, bytes]] = ()) -> None:
        """`place`: path of the records. `nodes`: names and records."""
        self._place = place
        self._encoded: dict[DatasetName, bytes | None] = {DatasetName(name): data for name, data in nodes}
        """None: only the decoded one is current."""
        self._decoded: OrderedDict[DatasetName, Dataset] = OrderedDict()

    def __getitem__(self, name: DatasetName) -> Dataset:
        dataset = self._decoded.get(name)
        if dataset is None:
            data = self._encoded[name]
            dataset = readable_record(CODEC, data, f"{self._place}/{name}") or _unreadable(name)
        self._keep(name, dataset)
        return dataset

    def __setitem__(self, name: DatasetName, dataset: Dataset) -> None:
        self._encoded[name] = None
        self._keep(name, dataset)

    def _keep(self, name: DatasetName, dataset: Dataset) -> None:
        self._decoded[name] = dataset
        self._decoded.move_to_end(name)
        if len(self._decoded) > MAX_DECODED:
            other, dropped = self._decoded.popitem(last=False)
            if self._encoded[other] is None:
                self._encoded[other] = CODEC.encode(dropped)

    def __delitem__(self, name: DatasetName) -> None:
        del self._encoded[name]
        self._decoded.pop(name, None)

    def __iter__(self) -> Iterator[DatasetName]:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)


def _unreadable(name: DatasetName) -> Dataset:
    return Dataset(
        name=name,
        pipeline=PipelineName(""),
        partition=Partitioning.WHOLE,
        dropped=sys.maxsize,  # any of them, so history is asked
        spans_from=datetime.now(UTC),
    )


def read_to_publish(calls: Calls, paths: Paths, names: Iterable[str] | None = None) -> Datasets:
    """Those of these datasets that exist, or all, for the leader."""
    wanted = (calls.children(paths.datasets) or ()) if names is None else names
    return Datasets(paths.datasets, calls.read_all(paths.datasets, wanted))


DUE_CODEC = Compressed(records.DUE)
"""256 extents on full hours take 0.6 kB with 20 causes; of random times and long names, 8 kB."""


def due_change(paths: Paths, write: PutDue) -> Operation:
    """The operation that stores or removes a consumer."""
    path = paths.due_of(write.pipeline)
    if write.due is None:
        return Operation("delete", path)
    return put(path, DUE_CODEC.encode(write.due), is_new=write.before is None)


def due_for_leader(name: str, data: bytes, place: str) -> Due:
    """A consumer. An unreadable record is logged, and starts nothing until an activation replaces it."""
    due = readable_record(DUE_CODEC, data, f"{place}/{name}")
    return due or Due(pipeline=PipelineName(name), start=DataStart())


def read_all_due(calls: Calls, paths: Paths) -> dict[PipelineName, Due]:
    """All consumers, for the leader."""
    dues = (due_for_leader(name, data, paths.due) for name, data in calls.records(paths.due))
    return {due.pipeline: due for due in dues}
