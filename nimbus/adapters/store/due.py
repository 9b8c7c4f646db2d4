"""Consumers in ZooKeeper: what is due for each pipeline that starts by data."""

from __future__ import annotations

from nimbus import records
from nimbus.adapters.store.calls import Calls, readable
from nimbus.adapters.store.compressed import Compressed
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation
from nimbus.domain.due import Due
from nimbus.domain.ids import PipelineName
from nimbus.domain.writes import PutDue

CODEC = Compressed(records.DUE)
"""256 extents and 20 causes take about 3 kB."""


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


def read_all(calls: Calls, paths: Paths) -> dict[PipelineName, Due]:
    """All consumers. An unreadable record is logged and left out."""
    return {due.pipeline: due for due in readable(CODEC, calls.records(paths.due), paths.due)}
