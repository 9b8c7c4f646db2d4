"""Datasets: a task publishes in the transaction that accepts its success, so exactly once, and fenced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nimbus.domain.datasets import Dataset, published_by
from nimbus.domain.ids import DatasetName
from nimbus.domain.publications import Publication, Version
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
            changed[name] = PutDataset(_after(state, known, publication, version, write.run), before)
    return replace(decision, writes=(*decision.writes, *changed.values())) if changed else decision


def _published(run: Run, before: Run) -> Iterator[tuple[Publication, Version]]:
    """What tasks publish that have succeeded between two versions of a run."""
    for was, task in run.tasks.changes_since(before.tasks):
        if task.spec.publishes and (was is None or was.state is not TaskState.SUCCEEDED):
            yield from published_by(run, task)


def _after(
    state: State, known: Dataset | None, publication: Publication, version: Version, run: Run
) -> Dataset:
    """The dataset after a publication. Nothing is dropped before all runs are read."""
    oldest = min((state.runs.live[other].number for other in state.runs.of(run.pipeline)), default=run.number)

    def may_drop(other: Version) -> bool:
        return state.census_taken and other.run not in state.runs and other.number < oldest

    dataset = known or Dataset(
        name=publication.dataset, pipeline=run.pipeline, partition=publication.partition
    )
    if dataset.partition is not publication.partition:  # a later release divides it in another way
        dataset = replace(dataset, partition=publication.partition, versions=(), spans=(), spans_from=None)
    return replace(dataset, pipeline=run.pipeline).with_version(version, may_drop)
