"""Datasets in ZooKeeper: one compressed record for each."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from nimbus import records
from nimbus.adapters.store.calls import Calls, readable
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation
from nimbus.domain.datasets import Dataset
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.publications import Partitioning
from nimbus.domain.writes import PutDataset

_LARGEST = 8 << 20
"""Limit of a record after decompression, in bytes."""


class _Compressed:
    """Encodes datasets compressed: 48 versions take about 3 kB."""

    def encode(self, dataset: Dataset) -> bytes:
        """The record."""
        return zlib.compress(records.DATASET.encode(dataset))

    def decode(self, data: bytes, place: str) -> Dataset:
        """Read a record. Raises UnreadableRecordError."""
        unfolding = zlib.decompressobj()
        try:
            plain = unfolding.decompress(data, _LARGEST)
        except zlib.error as exc:
            raise records.UnreadableRecordError(place, str(exc)) from exc
        return records.DATASET.decode(plain, place)


CODEC = _Compressed()


def change(paths: Paths, write: PutDataset) -> Operation:
    """The operation that stores a dataset."""
    path = paths.dataset(write.dataset.name)
    return Operation("create" if write.before is None else "set", path, CODEC.encode(write.dataset))


def read(calls: Calls, paths: Paths, name: DatasetName) -> Dataset | None:
    """One dataset; None: it was never published. Raises UnreadableRecordError."""
    path = paths.dataset(name)
    data = calls.get(path)
    return None if data is None else CODEC.decode(data, path)


def readable_datasets(calls: Calls, paths: Paths) -> Iterator[Dataset]:
    """All datasets, by name. An unreadable record is logged and left out."""
    return readable(CODEC, calls.records(paths.datasets), paths.datasets)


def read_to_publish(calls: Calls, paths: Paths, names: Iterable[str]) -> Mapping[DatasetName, Dataset]:
    """Those of these datasets that exist, for the leader.

    An unreadable record is logged, and counts as one without versions, which the next publication replaces:
    otherwise no task could succeed that publishes it. Earlier versions are then looked up in history.
    """
    found: dict[DatasetName, Dataset] = {}
    for text, data in calls.read_all(paths.datasets, names):
        name = DatasetName(text)
        empty = Dataset(
            name=name,
            pipeline=PipelineName(""),
            partition=Partitioning.WHOLE,
            dropped=True,
            spans_from=datetime.now(UTC),
        )
        found[name] = next(readable(CODEC, [(text, data)], paths.datasets), empty)
    return found


def read_all_to_publish(calls: Calls, paths: Paths) -> Mapping[DatasetName, Dataset]:
    """All datasets, as of `read_to_publish`."""
    return read_to_publish(calls, paths, calls.children(paths.datasets) or ())
