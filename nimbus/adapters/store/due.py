"""Consumers in ZooKeeper: what is due for each pipeline that starts by data."""

from __future__ import annotations

from nimbus import records
from nimbus.adapters.store.calls import Calls, readable
from nimbus.adapters.store.datasets import Compressed
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation
from nimbus.domain.due import Due
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipeline import DataStart
from nimbus.domain.writes import PutDue

CODEC = Compressed(records.DUE)
"""256 extents on full hours take 0.6 kB with 20 causes; of random times and long names, 8 kB."""


def change(paths: Paths, write: PutDue) -> Operation:
    """The operation that stores or removes a consumer."""
    path = paths.due_of(write.pipeline)
    if write.due is None:
        return Operation("delete", path)
    return Operation("create" if write.before is None else "set", path, CODEC.encode(write.due))


def read(calls: Calls, paths: Paths, name: PipelineName) -> Due | None:
    """One consumer; None: the pipeline does not start by data. Raises UnreadableRecordError."""
    path = paths.due_of(name)
    data = calls.get(path)
    return None if data is None else CODEC.decode(data, path)


def read_for_leader(name: str, data: bytes, place: str) -> Due:
    """A consumer. An unreadable record is logged, and starts nothing until an activation replaces it."""
    found = next(readable(CODEC, [(name, data)], place), None)
    return found or Due(pipeline=PipelineName(name), start=DataStart())


def read_all(calls: Calls, paths: Paths) -> dict[PipelineName, Due]:
    """All consumers, for the leader."""
    found = (read_for_leader(name, data, paths.due) for name, data in calls.records(paths.due))
    return {due.pipeline: due for due in found}
