"""What has changed for a consumer since none of its due targets could start. Pure.

A consumer may have hundreds of extents, and a dataset hundreds of gaps. A target that lacked something lacks
it until a span is added within what it reads. So after a publication, the targets that read it are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from typing import NamedTuple

from nimbus.definition.targets import overlapping
from nimbus.domain.datasets import Dataset
from nimbus.domain.due import Due
from nimbus.domain.ids import DatasetName
from nimbus.domain.intervals import DataInterval, gaps, with_span, within
from nimbus.domain.pipeline import Schedule
from nimbus.domain.publications import Partitioning, Read

Spans = tuple[DataInterval, ...]
FEW = 32
"""With more changes of a dataset than these, all targets are looked at."""


class _Known(NamedTuple):
    """All that decides whether a read of a dataset lacks something."""

    is_published: bool
    partition: Partitioning | None
    spans: Spans
    spans_from: datetime | None


@dataclass(frozen=True, slots=True)
class Looked:
    """The facts of a look that found no target which may start, because each lacked something."""

    schedule: Schedule | None
    reads: tuple[Read, ...]
    extents: Spans
    known: Mapping[DatasetName, _Known]


def facts_of(due: Due, datasets: Mapping[DatasetName, Dataset]) -> Looked:
    """The facts that decide which due targets lack something."""
    return Looked(
        due.schedule, due.reads, due.extents, {read.dataset: _known(read, datasets) for read in due.reads}
    )


def _known(read: Read, datasets: Mapping[DatasetName, Dataset]) -> _Known:
    found = datasets.get(read.dataset)
    if found is None:
        return _Known(is_published=False, partition=None, spans=(), spans_from=None)
    return _Known(found.published > 0, found.partition, found.spans, found.spans_from)


def changed_since(before: Looked, now: Looked) -> Spans | None:
    """The parts of due extents whose targets may lack nothing now, but did; None: look at all."""
    schedule = now.schedule
    if schedule is None or (before.schedule, before.reads) != (schedule, now.reads):
        return None
    times: list[DataInterval | None] = [*_added(before.extents, now.extents)]
    for read in now.reads:
        was, known = before.known[read.dataset], now.known[read.dataset]
        if was[:2] != known[:2]:
            return None
        changed = [*_added(was.spans, known.spans)]
        if was.spans_from != known.spans_from:
            if was.spans_from is None or known.spans_from is None:
                return None
            changed.append(DataInterval(*sorted((was.spans_from, known.spans_from))))
        if len(changed) > FEW:
            return None
        times += [overlapping(read, schedule, one) for one in changed]
    joined: Spans = reduce(with_span, filter(None, times), ())
    return tuple(
        DataInterval(start=max(one.start, extent.start), end=min(one.end, extent.end))
        for one in joined
        for extent in now.extents[within(now.extents, one)]
        if one.start < extent.end and extent.start < one.end
    )


def _added(before: Spans, now: Spans) -> Iterator[DataInterval]:
    """The times of spans that others did not have. Both are in order, and mostly the same objects."""
    known = set(map(id, before))
    for span in now:
        if id(span) not in known:
            yield from gaps(span, before[within(before, span)])
