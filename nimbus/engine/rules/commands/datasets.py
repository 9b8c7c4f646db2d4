"""Commands about datasets: versions from outside, withdrawals, removal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from nimbus.domain.commands import DatasetCommand, QueuedCommand, RemoveDataset, WithdrawDataset
from nimbus.domain.data.datasets import Dataset, datasets_of, versions_of
from nimbus.domain.data.publications import Accepted, Change, OutsideData, Version, content_of
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import DatasetName
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from nimbus.domain.runs.run_number import next_number
from nimbus.domain.writes import PutDataset, RemoveDatasetRecord
from nimbus.engine.decision import Answer, Decision, Done, NoDecision, Refusal, StoreVersions
from nimbus.engine.rules.datasets import with_version
from nimbus.engine.state import State

MAX_NAMED = 5
"""How many users of a dataset a refusal names."""


def dataset_changed(
    state: State, queued: QueuedCommand, command: DatasetCommand, now: datetime
) -> Done | Answer:
    """The answer to the client, and the writes; or a decision that must come first, or `NoDecision` to wait.

    Raises RefusedError: the command cannot be carried out.
    """
    if queued.id in state.commands.stored.under_way:
        return NoDecision()
    if isinstance(command, WithdrawDataset):
        return _withdrawn(state, queued, command, now)
    if isinstance(command, RemoveDataset):
        return _removed(state, queued, command)
    record, accepted = accepting(state, command.dataset)
    if fault := accepted.fault_of(command.partition):
        raise RefusedError("bad_partition", f"dataset {command.dataset}: {fault}.")
    before = state.catalog.datasets.get(command.dataset)
    if before is not None and before.published and before.partition is not accepted.partition:
        raise RefusedError(
            "dataset_repartitioned",
            f"dataset {command.dataset} is published with `partition: {before.partition}`, and pipeline "
            f"{record.name} says `{accepted.partition}`: use a dataset of another name.",
        )
    unstored = () if before is None else before.unstored
    stored = _stored(state, StoreVersions(queued.id, command.dataset, unstored)) if unstored else ()
    if not isinstance(stored, tuple):
        return stored
    number = next_number(state.epoch, state.runs.newest_number)
    version = Version(
        partition=command.partition,
        number=number,
        sequence=number,
        at=now,
        keep=accepted.keep,
        keep_versions=accepted.keep_versions,
        outside=OutsideData(uri=command.uri, sha256=command.sha256, value=command.value),
        change=Change(command=queued.id, by=queued.submitted_by),
    )
    write = with_version(state, accepted, version, record.name)
    of = f" of {command.partition}" if command.partition else ""
    unverified = "" if command.sha256 else ", unverified: without a digest"
    return f"version {version.number} of {command.dataset}{of} is published{unverified}", (write,)


def accepting(state: State, name: DatasetName) -> tuple[PipelineRecord, Accepted]:
    """The pipeline by which a dataset takes versions from outside. Raises RefusedError: there is none."""
    for record in state.catalog.pipelines.values():
        for accepted in record.profile.accepts if record.state is not PipelineState.INACTIVE else ():
            if accepted.dataset == name:
                return record, accepted
    raise RefusedError(
        "not_from_outside",
        f"no active release says that dataset {name} comes from outside: add "
        f"`datasets: {{{name}: {{outside: true}}}}` to the pipeline that owns it, and activate it.",
    )


def _withdrawn(state: State, queued: QueuedCommand, command: WithdrawDataset, now: datetime) -> Done | Answer:
    name, partition = command.dataset, command.partition
    dataset = state.catalog.datasets.get(name)
    if dataset is None or not dataset.published or dataset.removing:
        raise RefusedError("unknown_dataset", f"there is no version of dataset {name}.")
    kept = dataset.version(partition)
    known = (*filter(None, [kept]), *dataset.unstored, *_of_live_runs(state, dataset))
    stored = _stored(
        state,
        StoreVersions(
            queued.id,
            name,
            dataset.unstored,
            partition,
            tuple(version for version in known if version.partition == partition),
        ),
    )
    if not isinstance(stored, tuple):
        return stored
    *_, current, before = stored
    if command.number not in (None, current.number):
        raise RefusedError(
            "changed",
            f"the newest version of {name} is {current.number}, not {command.number}: nothing was done.",
        )
    change = Change(
        command=queued.id,
        by=queued.submitted_by,
        reason=command.reason,
        made_at=before.made_at,
        withdrew=content_of(current),
        restored=before.number,
    )
    number = next_number(state.epoch, state.runs.newest_number)
    version = replace(before, number=number, sequence=number, at=now, change=change)
    accepted = Accepted(dataset=name, partition=dataset.partition)
    write = with_version(state, accepted, version, dataset.pipeline)
    by = f"run {before.run}" if before.run else "a command"
    return f"version {current.number} of {name} is withdrawn: that of {by} is published again", (write,)


def _removed(state: State, queued: QueuedCommand, command: RemoveDataset) -> Done | Answer:
    name = command.dataset
    dataset = state.catalog.datasets.get(name)
    if dataset is None:
        raise RefusedError("unknown_dataset", f"there is no version of dataset {name}.")
    answer = state.commands.stored.results.get(queued.id)
    if isinstance(answer, Refusal):
        raise RefusedError(answer.code, answer.message)
    about = {"command": queued.id, "dataset": name}
    if not dataset.removing:
        # From then on no release and no run may begin to use it. Its history goes next, and the record last:
        # when the leader dies, the dataset is whole, or its removal goes on.
        _check_unused(state, dataset)
        marked = PutDataset(replace(dataset, removing=True), dataset)
        return Decision(name="dataset_removal_noted", writes=(marked,), about=about)
    if answer != ():
        number = next_number(state.epoch, state.runs.newest_number)
        effect = StoreVersions(queued.id, name, (), removes=number)
        return Decision(name="dataset_removal_started", effects=(effect,), about=about)
    message = f"dataset {name} is removed; outputs of its runs stay until they are purged"
    return message, (RemoveDatasetRecord(dataset),)


def _check_unused(state: State, dataset: Dataset) -> None:
    """Raise RefusedError while an active release names a dataset, or a run in ZooKeeper publishes it."""
    users = [
        f"pipeline {record.name} {'publishes' if dataset.name in record.profile.datasets else 'reads'} it"
        for record in state.catalog.pipelines.values()
        if record.state is not PipelineState.INACTIVE
        and dataset.name in (*record.profile.datasets, *record.profile.reads)
    ]
    users += [  # also of a pipeline that published it before
        f"run {run} publishes it"
        for run in sorted(state.runs.live)
        if dataset.name in datasets_of(state.runs.live[run])
    ]
    # Its versions go to history when it ends, and again when another leader takes over.
    users += [
        f"run {run} has published it, and is removed runs.keep_finished after its end"
        for run in sorted({version.run for version in dataset.versions}.intersection(state.runs.finished))
    ]
    if users:
        more = f", and {len(users) - MAX_NAMED} more" if len(users) > MAX_NAMED else ""
        raise RefusedError("dataset_in_use", f"dataset {dataset.name}: {', '.join(users[:MAX_NAMED])}{more}.")


def _of_live_runs(state: State, dataset: Dataset) -> Iterator[Version]:
    """Versions that history does not have before their run is over."""
    for run_id in state.runs.of(dataset.pipeline):
        for publication, version in versions_of(state.runs.live[run_id]):
            if publication.dataset == dataset.name:
                yield version


def _stored(state: State, effect: StoreVersions) -> tuple[Version, ...] | Answer:
    """What the effect has answered. If it has not, or versions have come since: what must come first."""
    answer = state.commands.stored.results.get(effect.command, ())
    if isinstance(answer, Refusal):
        raise RefusedError(answer.code, answer.message)
    newest = max((version.number for version in effect.known), default=0)
    is_of_now = effect.partition is None or (bool(answer) and answer[-2].number >= newest)
    if is_of_now and all(version in answer for version in effect.versions):
        return answer
    about = {"command": effect.command, "dataset": effect.dataset}
    return Decision(name="versions_storing_started", effects=(effect,), about=about)
