"""Writes and reads pipelines in ZooKeeper: one, several or all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from nimbus import pipeline_record
from nimbus.adapters.store.calls import Calls, decoded, or_raise, without_unreadable
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation, put
from nimbus.adapters.store.watched import WatchedNodes
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.ports import Enqueue
from nimbus.records import UnreadableRecordError


def creation(paths: Paths, record: PipelineRecord) -> Iterator[Operation]:
    """The operations that create a pipeline."""
    yield Operation("create", paths.pipeline(record.name), pipeline_record.encode(record))
    position = pipeline_record.encode_position(record)
    if position is not None:
        yield Operation("create", paths.schedule(record.name), position)


def change(paths: Paths, record: PipelineRecord, before: PipelineRecord) -> Iterator[Operation]:
    """The operations that update a pipeline from an earlier version; a fire only moves the position."""
    data, position = pipeline_record.encode(record), pipeline_record.encode_position(record)
    if data != pipeline_record.encode(before):
        yield Operation("set", paths.pipeline(record.name), data)
    standing = pipeline_record.encode_position(before)
    if position is not None and position != standing:
        yield put(paths.schedule(record.name), position, is_new=standing is None)


def removal(paths: Paths, record: PipelineRecord) -> Iterator[Operation]:
    """The operations that remove a pipeline."""
    yield Operation("delete", paths.pipeline(record.name))
    if pipeline_record.encode_position(record) is not None:
        yield Operation("delete", paths.schedule(record.name))


def read_pipeline(calls: Calls, paths: Paths, name: PipelineName) -> PipelineRecord | None:
    """One pipeline; None if it does not exist. Raises UnreadableRecordError."""
    return next(all_pipelines(calls, paths, [name]), None)


def readable_pipelines(
    calls: Calls, paths: Paths, names: Iterable[str] | None = None
) -> Iterator[PipelineRecord]:
    """Some pipelines, or all; an unreadable record is logged and left out."""
    return without_unreadable(_read(calls, paths, names))


def all_pipelines(calls: Calls, paths: Paths, names: Iterable[str] | None = None) -> Iterator[PipelineRecord]:
    """Some pipelines, or all. Raises UnreadableRecordError."""
    return or_raise(_read(calls, paths, names))


def _read(
    calls: Calls, paths: Paths, names: Iterable[str] | None
) -> Iterator[PipelineRecord | UnreadableRecordError]:
    """Read all records, then all positions, because a position is created with its record or later."""
    wanted = tuple((calls.children(paths.pipelines) or ()) if names is None else names)
    nodes = [place(PipelineName(name)) for place in (paths.pipeline, paths.schedule) for name in wanted]
    _, data = calls.list_and_read((), (), nodes)
    records = {name: of for name, of in zip(wanted, data, strict=False) if of is not None}
    return _decoded(paths, records, dict(zip(wanted, data[len(wanted) :], strict=True)))


def watched_pipelines(
    calls: Calls, paths: Paths, changed: Mapping[str, Enqueue]
) -> dict[str, PipelineRecord]:
    """Some pipelines by name, with watches on their nodes. An unreadable record is logged and left out."""
    records = dict(calls.read_watched(paths.pipelines, changed))
    positions = dict(calls.read_watched(paths.schedules, {name: changed[name] for name in records}))
    without = [name for name in records if name not in positions]
    calls.await_all({paths.schedule(PipelineName(name)): changed[name] for name in without})
    positions |= calls.read_all(paths.schedules, without)
    return {record.name: record for record in without_unreadable(_decoded(paths, records, positions))}


def _decoded(
    paths: Paths, records: Mapping[str, bytes], positions: Mapping[str, bytes | None]
) -> Iterator[PipelineRecord | UnreadableRecordError]:
    for name, data in records.items():
        try:
            record = pipeline_record.decode(data, f"{paths.pipelines}/{name}")
            yield pipeline_record.with_position(record, positions.get(name), f"{paths.schedules}/{name}")
        except UnreadableRecordError as exc:
            yield exc


class TreeCatalog:
    """See `nimbus.ports.CatalogFeed`. One thread, except for the watches."""

    def __init__(self, calls: Calls, root: str) -> None:
        self._calls, self._paths = calls, Paths(root)
        self._records = WatchedNodes(self._calls, self._read_records, self._on_change)
        self._tell: Enqueue | None = None

    def read(self, changed: Enqueue | None = None) -> tuple[PipelineRecord, ...]:
        """All pipelines, without their positions. Reads only those that changed since the last call."""
        self._tell = changed
        self._calls.ensure(self._paths.pipelines)
        names = self._calls.children(self._paths.pipelines, changed) or ()
        records = self._records.values(names)
        return tuple(records[name] for name in names if name in records)

    def _read_records(self, changed: Mapping[str, Enqueue]) -> Mapping[str, PipelineRecord]:
        parent = self._paths.pipelines
        nodes = self._calls.read_watched(parent, changed)
        records = without_unreadable(decoded(pipeline_record.decode, nodes, parent))
        return {record.name: record for record in records}

    def _on_change(self) -> None:
        if (tell := self._tell) is not None:
            tell()
