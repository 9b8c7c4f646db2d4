"""Checks in the turn that decides a command: the permission to do it, and the revision in `If-Match`."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from nimbus.access.rules import (
    Lookups,
    OfPipeline,
    as_of_now,
    check_command,
    check_owner,
    has_grant,
)
from nimbus.domain import commands as c
from nimbus.domain.cluster import revisions
from nimbus.domain.cluster.access import Principal
from nimbus.domain.data.datasets import read_grant
from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.engine.rules.commands.datasets import accepting
from nimbus.engine.state import State


class ChangedRecord(NamedTuple):
    """What a command changes."""

    name: str
    revision: str | None
    """None: the object does not exist."""


def check_unchanged(state: State, queued: c.QueuedCommand) -> None:
    """Raise RefusedError if a command names revisions, and none is the current one.

    The state includes all decisions of this term, and they are written in the same order under the same
    epoch. So nothing can change the record between this check and the transaction of the command.
    """
    if not queued.if_match:
        return
    target = target_of(state, queued.command)
    if target.revision is None:
        raise RefusedError("changed", f"there is no {target.name}, so no revision of it: nothing was done.")
    if not {target.revision, revisions.ANY} & set(queued.if_match):
        raise RefusedError(
            "changed",
            f"{target.name} was changed since it was read: nothing was done. Read it again, then decide.",
        )


def target_of(state: State, command: c.Command | c.Unreadable) -> ChangedRecord:
    """The object of a command, with its revision. An object without a revision has None."""
    settings = state.settings
    if not isinstance(command, c.ConditionalCommand):
        return ChangedRecord(f"record that {command.type} is about", None)
    if isinstance(command, c.PipelineCommand):
        record = state.catalog.pipelines.get(command.pipeline)
        return ChangedRecord(
            f"pipeline {command.pipeline}", None if record is None else revisions.of_pipeline(record)
        )
    match command:
        case c.ControlBackfill(backfill=backfill_id):
            backfill = state.catalog.backfills.get(backfill_id)
            return ChangedRecord(
                f"backfill {backfill_id}", None if backfill is None else revisions.of_backfill(backfill)
            )
        case c.SetPool(pool=pool) | c.RemovePool(pool=pool):
            size = settings.pools.get(pool)
            return ChangedRecord(f"pool {pool}", None if size is None else revisions.of_pool(pool, size))
        case c.SetVariable(name=variable) | c.RemoveVariable(name=variable):
            value = settings.variables.get(variable)
            return ChangedRecord(
                f"variable {variable}", None if value is None else revisions.of_variable(variable, value)
            )
        case c.CreateToken(id=token_id) | c.RevokeToken(id=token_id):
            token = settings.tokens.get(token_id)
            return ChangedRecord(f"token {token_id}", None if token is None else revisions.of_token(token))


def check_access(state: State, queued: c.QueuedCommand, now: datetime) -> c.QueuedCommand:
    """The command, with the current role and teams of its principal, which are checked again.

    Raises AccessDeniedError: the principal does not have the permission (any more).
    """
    if queued.asked_by is None:
        return queued
    principal = as_of_now(queued.asked_by, state.settings.tokens, state.policy.grants, now)
    command, of = queued.command, lookups(state)
    check_command(principal, command, of, state.settings.grants)
    if isinstance(command, c.DatasetCommand):
        thing = of.of_dataset(command.dataset)
        if not has_grant(principal, command.needs_role, thing, state.settings.grants):
            _check_dataset(state, principal, command)
    return replace(queued, asked_by=principal)


def known_pipeline(state: State, name: PipelineName) -> PipelineRecord:
    """The record of a pipeline. Raises RefusedError if it is not in the catalog."""
    record = state.catalog.pipelines.get(name)
    if record is None:
        raise RefusedError(
            "unknown_pipeline",
            f"pipeline {name} is not in the catalog: publish it first (`nimbus pipeline publish`).",
        )
    return record


def lookups(state: State) -> Lookups:
    """What commands are about, in the leader's state."""
    catalog, runs = state.catalog, state.runs

    def run(run_id: RunId) -> OfPipeline | None:
        waiting = (queued.command for queued in state.commands.waiting.values())
        starts = (
            command for command in waiting if isinstance(command, c.StartRun) and command.run_id == run_id
        )
        return runs.live.get(run_id) or runs.finished.get(run_id) or next(starts, None)

    return Lookups(
        catalog.pipelines.get,
        catalog.pipelines.values,
        run,
        catalog.backfills.get,
        catalog.datasets.get,
    )


def _check_dataset(state: State, principal: Principal, command: c.DatasetCommand) -> None:
    """Raise AccessDeniedError if a principal may not change a dataset.

    The owner of its pipeline may, and admins. Others may publish it from outside if the pipeline names them.
    """
    dataset = state.catalog.datasets.get(command.dataset)
    if isinstance(command, c.PublishDataset):
        try:
            record, accepted = accepting(state, command.dataset)
        except RefusedError:
            return  # the command is refused for this
        if not accepted.senders or any(principal.owns(sender) for sender in accepted.senders):
            return
        check_owner(principal, record.name, record.owner)
    elif dataset is not None:
        of = state.catalog.pipelines.get(dataset.pipeline)
        grant = read_grant(dataset.name, dataset, state.catalog.pipelines.get)
        owner = None if of is None else of.owner
        check_owner(principal, dataset.pipeline, owner if grant is None else grant.owner)
