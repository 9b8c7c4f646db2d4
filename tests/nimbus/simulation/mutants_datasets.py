"""Bugs of datasets. More of them: `tests/nimbus/property/test_datasets.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nimbus.domain import writes as w
from nimbus.domain.data.datasets import Dataset, published_by
from nimbus.domain.data.publications import earlier
from nimbus.domain.runs.run_number import next_number
from nimbus.engine import history_lookups
from nimbus.engine.decision import StoreVersions
from nimbus.engine.leader_term import LeaderTerm
from nimbus.engine.rules import datasets, reads
from nimbus.engine.rules.commands import datasets as dataset_commands
from nimbus.engine.state import tasks
from nimbus.engine.state.tasks import WaitingTasks
from tests.nimbus.simulation import scheduler
from tests.nimbus.simulation.mutant import mutant, replaced
from tests.nimbus.simulation.mutants_leaders import in_two


@mutant
def version_is_published_in_a_second_transaction() -> Iterator[None]:
    """AF 35870, AF 52711: an event that is written after the success can be lost."""
    with replaced(LeaderTerm, _do=in_two(lambda write: not isinstance(write, w.PutDataset))):
        yield


@mutant
def older_run_replaces_the_version_of_a_newer_one() -> Iterator[None]:
    """The last one to end wins, so a slow run of an old interval puts old data back."""
    original = Dataset.with_version

    def with_version(self: Dataset, version: Any, may_drop: Any) -> Dataset:
        versions = tuple(replace(one, number=0) for one in self.versions)
        return original(replace(self, versions=versions), version, may_drop)

    with replaced(Dataset, with_version=with_version):
        yield


@mutant
def success_publishes_again_with_each_change_of_its_run() -> Iterator[None]:
    """DS 28065: an update counts twice."""

    def published(run: Any, _before: Any) -> Iterator[Any]:
        for task in run.tasks.in_order():
            yield from published_by(run, task)

    with replaced(datasets, _published=published):
        yield


@mutant
def readers_are_not_told_of_a_publication() -> Iterator[None]:
    """AF 52711: all inputs are updated, and nothing starts."""
    with replaced(WaitingTasks, enqueue_readers=lambda _self, _dataset: None):
        yield


@mutant
def task_begins_before_its_inputs_are_pinned() -> Iterator[None]:
    """AF 56541: a consumer starts with 15 of 16 inputs."""
    with replaced(tasks, to_pin=lambda _run, _task: ()):
        yield


@mutant
def parts_are_the_newest_versions() -> Iterator[None]:
    """Another run has published the same key meanwhile, and its data are read as those of an item."""

    def found_versions(asked: Any, history: Any, _parts: Any) -> Any:
        return history_lookups.found_versions(
            [(replace(read, of=None), *rest) for read, *rest in asked], history, _parts
        )

    with replaced(scheduler, found_versions=found_versions):
        yield


@mutant
def reads_are_pinned_although_some_are_missing() -> Iterator[None]:
    """Dagster 26935: a missing input is ignored."""

    def found_versions(asked: Any, history: Any, _parts: Any) -> Any:
        return {
            read.name: history_lookups.versions_for(read, wanted, known, history)
            for read, wanted, known in asked
        }

    with (
        replaced(reads, missing=lambda _read, _run, _dataset: ""),
        replaced(scheduler, found_versions=found_versions),
    ):
        yield


@mutant
def command_is_answered_after_its_version() -> Iterator[None]:
    """A leader that dies in between publishes it a second time."""
    with replaced(LeaderTerm, _do=in_two(lambda write: isinstance(write, w.PutDataset))):
        yield


@mutant
def version_of_a_command_is_not_stored_before_the_next_one() -> Iterator[None]:
    """No run has it, so nothing stores it in history when its run ends."""
    original = datasets.with_version

    def with_version(*args: Any) -> w.PutDataset:
        put = original(*args)
        return replace(put, dataset=replace(put.dataset, unstored=()))

    with replaced(dataset_commands, with_version=with_version):
        yield


@mutant
def history_is_removed_before_it_is_noted() -> Iterator[None]:
    """A leader dies in between, a reader is activated, and the removal is refused with the history gone."""
    original = dataset_commands._removed

    def removed(state: Any, queued: Any, command: Any) -> Any:
        dataset = state.catalog.datasets.get(command.dataset)
        if dataset is None:
            return original(state, queued, command)
        dataset_commands._check_unused(state, dataset)
        state.catalog.datasets[dataset.name] = replace(dataset, removing=True)
        try:
            return original(state, queued, command)
        finally:
            state.catalog.datasets[dataset.name] = dataset

    with replaced(dataset_commands, _removed=removed):
        yield


@mutant
def removed_dataset_stays_in_history() -> Iterator[None]:
    """A dataset of the same name shows versions of the removed one."""

    def stored_and_found(effect: StoreVersions, history: Any) -> Any:
        return () if effect.removes else history_lookups.stored_and_found(effect, history)

    with replaced(scheduler, stored_and_found=stored_and_found):
        yield


@mutant
def command_gets_a_number_below_those_of_runs() -> Iterator[None]:
    """A withdrawn version comes back, because its run has a larger number."""
    with replaced(dataset_commands, next_number=lambda epoch, _newest: next_number(epoch - 1, 0)):
        yield


@mutant
def each_run_reads_all_that_there_is() -> Iterator[None]:
    """AF 38826: all of history is handed over again."""
    with replaced(datasets, _note_taken=lambda _state, _known, _run: None):
        yield


@mutant
def withdrawn_data_come_back_under_another_number() -> Iterator[None]:
    """A sender has published the same URI twice, and the withdrawal of one shows the other."""

    def before(current: Any, known: Any) -> list[Any]:
        unlike = (replace(one, source=replace(one.source, number=one.number), outside=None) for one in known)
        fitting = {one.number for one in earlier(current, unlike)}
        return sorted((one for one in known if one.number in fitting), key=lambda one: -one.number)

    with replaced(history_lookups, earlier=before):
        yield
