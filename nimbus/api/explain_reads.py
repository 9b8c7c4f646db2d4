"""Explains why a task waits for datasets. Pure: facts in, sentence out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nimbus.domain.datasets import Dataset
from nimbus.domain.ids import DatasetName, PipelineName, RunId
from nimbus.domain.publications import Read
from nimbus.domain.reads import Reader, ReadError, missing, reads_new, to_pin
from nimbus.domain.run import Run, RunHeader
from nimbus.domain.task_run import TaskRun

_LOOKED_UP = "waits for the look-up of its versions; while storage does not answer, repeated every 5 s"
MOST_RUNS = 3
"""How many runs that may publish a text names."""


@dataclass(frozen=True, slots=True)
class DatasetView:
    """What is known of a dataset."""

    dataset: Dataset | None
    publishers: tuple[PipelineName, ...] = ()
    """Pipelines whose active releases publish it."""
    runs: tuple[RunId, ...] = ()
    """Their runs that have not ended."""


def why_it_reads(
    run: Run,
    task: TaskRun,
    view: Callable[[DatasetName], DatasetView],
    live: Callable[[], Iterable[RunHeader]] = tuple,
) -> str | None:
    """Explain a ready task whose reads are not pinned; None: all are. `live`: live runs of its pipeline."""
    reads = to_pin(run, task.spec.name)
    if not reads:
        return None
    if any(read.new for read in reads):
        for other in live():
            if other.id != run.id and reads_new(other):
                return f"waits for the end of run {other.id}, which reads what is new"
    told_of = [told for read in reads if (told := lacks(read, run, view(read.dataset)))]
    return f"waits for {'; '.join(told_of)}" if told_of else _LOOKED_UP


def lacks(read: Read, run: Reader, view: DatasetView) -> str:
    """What a read waits for, with who may publish it; empty: nothing."""
    try:
        told = missing(read, run, view.dataset)
    except ReadError as exc:
        return f"{exc}; the leader ends it next"
    if not told and _lacks_key(read, view.dataset):
        told = f"dataset {read.dataset}: key {read.key} is not published"
    if not told:
        return ""
    if not view.publishers:
        return f"{told} (no active pipeline that you may see publishes it)"
    if not view.runs:
        return f"{told} (no run of {', '.join(view.publishers)}, which publishes it, is under way)"
    more = f" and {len(view.runs) - MOST_RUNS} more" if len(view.runs) > MOST_RUNS else ""
    runs = f"{', '.join(view.runs[:MOST_RUNS])}{more}"
    return f"{told} ({', '.join(view.publishers)} publishes it: {runs} under way)"


def _lacks_key(read: Read, dataset: Dataset | None) -> bool:
    return bool(read.key) and not read.optional and dataset is not None and dataset.version(read.key) is None
