"""Indexes of intervals in ZooKeeper: a node for each pipeline, and below it a node for each page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from pydantic import TypeAdapter

from nimbus.adapters.store.calls import Calls, readable_record
from nimbus.adapters.store.paths import Paths
from nimbus.adapters.store.transaction import Operation, put
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.interval_index import IndexPage, IntervalIndex
from nimbus.domain.writes import PutIntervals
from nimbus.records import RecordCodec

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    begins: datetime
    longest: timedelta = timedelta(0)


_ANY = timedelta(days=366 * 10_000)
_HEAD: RecordCodec[_Head] = RecordCodec(TypeAdapter(_Head))


def change(paths: Paths, write: PutIntervals) -> Iterator[Operation]:
    """The operations that update an index from an earlier version."""
    name, index, before = write.pipeline, write.index, write.before
    old = {page.name: page.data for page in before.pages} if before is not None else {}
    new = {page.name: page.data for page in index.pages} if index is not None else {}
    if index is not None:
        head = _encoded(index)
        if before is None or head != _encoded(before):
            yield put(paths.interval_index(name), head, is_new=before is None)
    for page in sorted(old.keys() - new.keys()):
        yield Operation("delete", paths.interval_page(name, page))
    for page, data in new.items():
        if old.get(page) != data:
            yield put(paths.interval_page(name, page), data, is_new=page not in old)
    if index is None:
        yield Operation("delete", paths.interval_index(name))


def read(calls: Calls, paths: Paths, name: PipelineName) -> IntervalIndex | None:
    """One index; None if there is none."""
    return _read(calls, paths, [name]).get(name)


def read_all(calls: Calls, paths: Paths) -> Mapping[PipelineName, IntervalIndex]:
    """All indexes."""
    return _read(calls, paths, calls.children(paths.intervals) or ())


def _read(calls: Calls, paths: Paths, names: Sequence[str]) -> dict[PipelineName, IntervalIndex]:
    """Read in two rounds: the names of the pages with the heads, then the pages."""
    nodes = [paths.interval_index(PipelineName(name)) for name in names]
    listed, heads = calls.list_and_read(nodes, [None] * len(nodes), nodes)
    wanted = [f"{name}/{page}" for name, pages in zip(names, listed, strict=True) for page in pages or ()]
    written = dict(calls.read_all(paths.intervals, wanted))
    indexes: dict[PipelineName, IntervalIndex] = {}
    for name, node, pages, head in zip(names, nodes, listed, heads, strict=True):
        if head is not None:
            data = {page: written.get(f"{name}/{page}") for page in pages or ()}
            known = [IndexPage(page, rows) for page, rows in data.items() if rows is not None]
            indexes[PipelineName(name)] = _decoded(head, known, node)
    return indexes


def _decoded(head: bytes, pages: Iterable[IndexPage], place: str) -> IntervalIndex:
    """Decode an index. An unreadable part counts as empty, and then the past is unknown."""
    read = readable_record(_HEAD, head, place)
    sound = [page if _is_sound(page, place) else IndexPage(page.name, b"") for page in pages]
    if read is None or not all(page.data for page in sound):
        read = _Head(begins=datetime.now(UTC), longest=_ANY if read is None else read.longest)
    return IntervalIndex(read.begins, read.longest, tuple(sound))


def _is_sound(page: IndexPage, place: str) -> bool:
    try:
        page.rows()
    except ValueError as exc:
        _log.error("record_unreadable", place=f"{place}/{page.name}", error=str(exc))
        return False
    return True


def _encoded(index: IntervalIndex) -> bytes:
    return _HEAD.encode(_Head(begins=index.begins, longest=index.longest))
