"""Datasets: a task publishes in the transaction that accepts its success, so exactly once, and fenced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from nimbus.domain.datasets import Dataset, published_by, still_published_by
from nimbus.domain.ids import DatasetName, PipelineName
from nimbus.domain.publications import Accepted, Publication, Version
from nimbus.domain.run import Run
from nimbus.domain.task_run import TaskState
from nimbus.domain.writes import PutDataset, PutRun
from nimbus.engine.decision import Decision
from nimbus.engine.state import State


def noted(state: State, decision: Decision) -> Decision:
    """The decision, with the datasets that its tasks publish."""
    changed: dict[DatasetName, PutDataset] = {}
    for write in decision.writes:
        if not isinstance(write, PutRun) or not write.run.tasks.publishes:
            continue
        for publication, version in _published(write.run, write.before):
            name = publication.dataset
            before = state.catalog.datasets.get(name)
            known = changed[name].dataset if name in changed else before
            if known is not None and known.published and known.partition is not publication.partition:
                continue  # no release may change it: see `release_checks`
            changed[name] = PutDataset(_after(state, known, publication, version, write.run.pipeline), before)
    return replace(decision, writes=(*decision.writes, *changed.values())) if changed else decision


def _published(run: Run, before: Run) -> Iterator[tuple[Publication, Version]]:
    """What tasks publish that have succeeded between two versions of a run."""
    for was, task in run.tasks.changes_since(before.tasks):
        if task.spec.publishes and (was is None or was.state is not TaskState.SUCCEEDED):
            yield from published_by(run, task)


def with_version(
    state: State, publication: Publication | Accepted, version: Version, of: PipelineName
) -> PutDataset:
    """The write that publishes a version of a pipeline, made by a command, in its transaction."""
    before = state.catalog.datasets.get(publication.dataset)
    after = _after(state, before, publication, version, of)
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
        return state.census_taken and is_stored and older >= other.number

    record, readers = state.catalog.pipelines.get(pipeline), dataset.readers
    if record is not None and name in record.profile.datasets:
        readers = record.profile.readers.get(name)
    owned = replace(dataset, pipeline=pipeline, partition=publication.partition, readers=readers)
    return owned.with_version(version, may_drop)


def _oldest_publishers(
    state: State, name: DatasetName, pipelines: Iterable[PipelineName]
) -> dict[str | None, int]:
    """For each partition, the number of the oldest live run that may still publish it; None: for any."""
    found: dict[str | None, int] = {}
    for pipeline in pipelines:
        for run_id in state.runs.of(pipeline):
            run = state.runs.live[run_id]
            for partition in still_published_by(run, name):
                found[partition] = min(found.get(partition, run.number), run.number)
    return found
