"""Datasets: a task publishes in the transaction that accepts its success, so exactly once, and fenced."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import replace

from nimbus.domain.data.datasets import MAX_CARRIED, Dataset, Taken, published_by, still_published_by
from nimbus.domain.data.publications import Accepted, Publication, Version
from nimbus.domain.data.reads import taken_by
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.run_number import next_number
from nimbus.domain.runs.task_run import TaskRun, TaskState
from nimbus.domain.writes import CreatePipeline, CreateRun, PutDataset, PutRun, RemovePipelineRecord, Write
from nimbus.engine.decision import Decision
from nimbus.engine.state import State


def with_datasets(state: State, decision: Decision) -> Decision:
    """The decision, with the datasets that its tasks publish, and how far its runs have read what is new."""
    writes = tuple(_with_sequences(state, decision.writes))
    changed: dict[DatasetName, Dataset] = {}
    known = ChainMap(changed, state.catalog.datasets)
    for write in writes:
        if isinstance(write, PutRun) and write.run.tasks.publishes:
            for publication, version in _published(write.run, write.before):
                dataset = known.get(publication.dataset)
                if dataset is None or not dataset.published or dataset.partition is publication.partition:
                    after = _after(state, dataset, publication, version, write.run.pipeline)
                    known[publication.dataset] = after
                # else no release may change it: see `release_checks`
        if isinstance(write, (CreateRun, PutRun)) and write.run.state is RunState.SUCCEEDED:
            _note_taken(state, known, write.run)
        if isinstance(write, (CreatePipeline, RemovePipelineRecord)):
            _forget_taken(known, write.record)
    puts = (PutDataset(dataset, state.catalog.datasets.get(name)) for name, dataset in changed.items())
    return replace(decision, writes=(*writes, *puts)) if changed else decision


def _with_sequences(state: State, writes: Iterable[Write]) -> Iterator[Write]:
    """The writes, with a sequence for each success that publishes."""
    newest = state.runs.newest_number
    for write in writes:
        if not isinstance(write, PutRun) or not write.run.tasks.publishes:
            yield write
            continue
        tasks = write.run.tasks
        for was, task in tasks.changes_since(write.before.tasks):
            if task.spec.publishes and _has_succeeded(was, task):
                newest = next_number(state.epoch, newest)
                tasks = tasks.replaced([replace(task, sequence=newest)])
        yield replace(write, run=write.run.with_tasks(tasks))


def _note_taken(state: State, known: MutableMapping[DatasetName, Dataset], run: Run) -> None:
    """Note how far a run has read with `take: new`. A rerun of an old run has read what is noted already."""
    for name, sequence in taken_by(run):
        dataset = known.get(name)
        if dataset is not None and dataset.taken_by(run.pipeline) < sequence:
            taken = {
                other: taken for other, taken in dataset.taken.items() if other in state.catalog.pipelines
            }
            taken[run.pipeline] = Taken(sequence=sequence, run=run.id)
            known[name] = replace(dataset, taken=taken)


def _forget_taken(known: MutableMapping[DatasetName, Dataset], record: PipelineRecord) -> None:
    """Let a pipeline begin again. The last release of a removed one perhaps did not read what others had."""
    for name in record.profile.reads:
        dataset = known.get(name)
        if dataset is not None and record.name in dataset.taken:
            taken = {other: taken for other, taken in dataset.taken.items() if other != record.name}
            known[name] = replace(dataset, taken=taken)


def _has_succeeded(was: TaskRun | None, task: TaskRun) -> bool:
    return task.state is TaskState.SUCCEEDED and (was is None or was.state is not TaskState.SUCCEEDED)


def _published(run: Run, before: Run) -> Iterator[tuple[Publication, Version]]:
    for was, task in run.tasks.changes_since(before.tasks):
        if task.spec.publishes and _has_succeeded(was, task):
            yield from published_by(run, task)


def with_version(
    state: State, publication: Publication | Accepted, version: Version, of: PipelineName
) -> PutDataset:
    """The write that publishes a version of a pipeline, made by a command, in its transaction.

    Raises RefusedError: the record has no room, because older versions must stay in it.
    """
    name = publication.dataset
    before = state.catalog.datasets.get(name)
    after = _after(state, before, publication, version, of)
    if after.carried_bytes > MAX_CARRIED:
        oldest = min(_oldest_publishers(state, name, {of, after.pipeline}).values(), default=None)
        runs = (run.id for run in state.runs.live.values() if run.number == oldest)
        raise RefusedError(
            "dataset_full",
            f"dataset {name} would keep {len(after.versions)} versions, whose URIs and values have more than "
            f"{MAX_CARRIED} bytes: run {next(runs, 'of another')} may still publish an older one. Try again "
            "after its end.",
        )
    return PutDataset(replace(after, unstored=(version,)), before)


def _after(
    state: State,
    known: Dataset | None,
    publication: Publication | Accepted,
    version: Version,
    pipeline: PipelineName,
) -> Dataset:
    """The dataset after a publication. Nothing is dropped before all runs are read."""
    name = publication.dataset
    dataset = known or Dataset(name=name, pipeline=pipeline, partition=publication.partition)
    oldest = _oldest_publishers(state, name, {pipeline, dataset.pipeline})

    def may_drop(other: Version) -> bool:
        older = min(oldest.get(other.partition, other.number), oldest.get(None, other.number))
        is_stored = other.run not in state.runs and other not in dataset.unstored
        return state.is_loaded and is_stored and older >= other.number

    owned = replace(dataset, pipeline=pipeline, partition=publication.partition)
    record = state.catalog.pipelines.get(pipeline)
    if record is not None and name in record.profile.datasets:
        owned = replace(owned, readers=record.profile.readers.get(name), owner=record.owner)
    return owned.with_version(version, may_drop)


def _oldest_publishers(
    state: State, name: DatasetName, pipelines: Iterable[PipelineName]
) -> dict[str | None, int]:
    """For each partition, the number of the oldest live run that may still publish it; None: for any."""
    oldest: dict[str | None, int] = {}
    for pipeline in pipelines:
        for run_id in state.runs.of(pipeline):
            run = state.runs.live[run_id]
            for partition in still_published_by(run, name):
                oldest[partition] = min(oldest.get(partition, run.number), run.number)
    return oldest
