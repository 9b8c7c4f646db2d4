"""Commands about datasets: versions from outside. A task's versions: `nimbus.engine.rules.datasets`."""

from __future__ import annotations

from datetime import datetime

from nimbus.domain.catalog import PipelineRecord, PipelineState
from nimbus.domain.commands import DatasetCommand, QueuedCommand
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import DatasetName
from nimbus.domain.publications import Accepted, Change, Outside, Version
from nimbus.domain.run_number import next_number
from nimbus.domain.writes import Write
from nimbus.engine.decision import Answer, Decision, Nothing, Refusal, StoreVersions
from nimbus.engine.rules.datasets import with_version
from nimbus.engine.state import State


def dataset_changed(
    state: State, queued: QueuedCommand, command: DatasetCommand, now: datetime
) -> tuple[str, tuple[Write, ...]] | Answer:
    """The answer to the client, and the writes; or a decision that must come first, or `Nothing` to wait.

    Raises:
        RefusedError: the command cannot be carried out.
    """
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
    if (stored := _stored(state, queued, command.dataset, unstored)) is not None:
        return stored
    version = Version(
        partition=command.partition,
        number=next_number(state.epoch, state.runs.newest_number),
        at=now,
        keep=accepted.keep,
        outside=Outside(uri=command.uri, sha256=command.sha256, value=command.value),
        change=Change(command=queued.id, by=queued.submitted_by),
    )
    write = with_version(state, accepted, version, record.name)
    of = f" of {command.partition}" if command.partition else ""
    unverified = "" if command.sha256 else ", unverified: without a digest"
    return f"version {version.number} of {command.dataset}{of} is published{unverified}", (write,)


def accepting(state: State, name: DatasetName) -> tuple[PipelineRecord, Accepted]:
    """The pipeline by which a dataset takes versions from outside.

    Raises:
        RefusedError: there is none.
    """
    for record in state.catalog.pipelines.values():
        for accepted in record.profile.accepts if record.state is not PipelineState.INACTIVE else ():
            if accepted.dataset == name:
                return record, accepted
    raise RefusedError(
        "not_from_outside",
        f"no active release says that dataset {name} comes from outside: add "
        f"`datasets: {{{name}: {{outside: true}}}}` to the pipeline that owns it, and activate it.",
    )


def _stored(
    state: State, queued: QueuedCommand, name: DatasetName, unstored: tuple[Version, ...]
) -> Answer | None:
    """None: history has the versions that earlier commands have made. Else what must come first."""
    jobs = state.commands.stored
    if queued.id in jobs.under_way:
        return Nothing()
    answer = jobs.results.get(queued.id, ())
    if isinstance(answer, Refusal):
        raise RefusedError(answer.code, answer.message)
    if all(version in answer for version in unstored):
        return None
    effect = StoreVersions(queued.id, name, unstored)
    about = {"command": queued.id, "dataset": name}
    return Decision(name="versions_storing_started", effects=(effect,), about=about)
