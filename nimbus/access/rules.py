"""Checks of roles, grants and owners for commands. For the scheduler that gets it, and for the leader."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple, Protocol

from nimbus.access.oidc import Grants
from nimbus.domain.cluster.access import (
    AccessDeniedError,
    AccessGrant,
    AccessRole,
    Kind,
    Principal,
    PrincipalSource,
    Thing,
    Token,
    grant_on,
    holders,
    role_on,
)
from nimbus.domain.commands import (
    ActOnSelection,
    Command,
    ControlBackfill,
    CreateBackfill,
    DatasetCommand,
    LiveRunCommand,
    NoteRun,
    PipelineCommand,
    PublishRelease,
    RemovePipeline,
    RemoveVariable,
    SetVariable,
    StartRun,
    Unreadable,
)
from nimbus.domain.data.datasets import Dataset, read_grant
from nimbus.domain.ids import BackfillId, DatasetName, PipelineName, RunId
from nimbus.domain.pipelines.backfill import Backfill
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState


class OfPipeline(Protocol):
    """A run, in any form."""

    @property
    def pipeline(self) -> PipelineName:
        """Its pipeline."""


class Lookups(NamedTuple):
    """Finds what a command or a request is about: in the leader's state, or in the store."""

    pipeline: Callable[[PipelineName], PipelineRecord | None]
    pipelines: Callable[[], Iterable[PipelineRecord]]
    run: Callable[[RunId], OfPipeline | None]
    """Also one whose start waits for a decision."""
    backfill: Callable[[BackfillId], Backfill | None]
    dataset: Callable[[DatasetName], Dataset | None]

    def of_pipeline(self, name: PipelineName) -> Thing:
        """A pipeline, which may not exist."""
        record = self.pipeline(name)
        return Thing("pipeline", name, None if record is None else record.owner)

    def of_run(self, run_id: RunId) -> Thing | None:
        """The pipeline of a run; None: there is no such run."""
        run = self.run(run_id)
        return None if run is None else self.of_pipeline(run.pipeline)

    def of_backfill(self, backfill_id: BackfillId) -> Thing | None:
        """The pipeline of a backfill; None: there is no such backfill."""
        backfill = self.backfill(backfill_id)
        return None if backfill is None else self.of_pipeline(backfill.pipeline)

    def of_dataset(self, name: DatasetName) -> Thing:
        """A dataset, which may not exist. Its owner is that of the pipeline which publishes it."""
        dataset = self.dataset(name)
        grant = read_grant(name, dataset, self.pipeline)
        if grant is not None:
            return Thing("dataset", name, grant.owner)
        if dataset is not None:
            record = self.pipeline(dataset.pipeline)
            return Thing("dataset", name, dataset.owner if record is None else record.owner)
        active = (record for record in self.pipelines() if record.state is not PipelineState.INACTIVE)
        return Thing(
            "dataset",
            name,
            next((record.owner for record in active if name in record.profile.datasets), None),
        )

    def of(self, command: Command | Unreadable, asks: Principal) -> Thing | None:
        """What a command is about; None: the cluster, or something that does not exist."""
        if isinstance(command, PublishRelease) and self.pipeline(command.pipeline) is None:
            return Thing("pipeline", command.pipeline, asks.owner)  # it will belong to the caller
        if isinstance(command, PipelineCommand | StartRun | CreateBackfill | NoteRun):
            return self.of_pipeline(command.pipeline)
        if isinstance(command, LiveRunCommand):
            return self.of_run(command.run_id)
        if isinstance(command, ControlBackfill):
            return self.of_backfill(command.backfill)
        if isinstance(command, DatasetCommand):
            return self.of_dataset(command.dataset)
        if isinstance(command, SetVariable | RemoveVariable):
            return Thing("variable", command.name)
        return None


def check_command(
    principal: Principal, command: Command | Unreadable, of: Lookups, grants: Iterable[AccessGrant]
) -> None:
    """Check that a principal may send a command: its role, its grants, and whose the pipeline is.

    Raises AccessDeniedError: it may not.
    """
    grants, needed = tuple(grants), command.needs_role
    thing = of.of(command, principal)
    role = role_on(principal, thing, grants)
    if isinstance(command, ActOnSelection):  # the command for each target is checked
        own = (grant.role for grant in grants if principal.owns(grant.who))
        role = max((role, *own), key=lambda grant: grant.rank)
    if not role.includes(needed):
        # Who may not see it is not told that it exists.
        on = "" if thing is None or role is AccessRole.NONE else f" on {thing.kind} {thing.name}"
        raise AccessDeniedError(
            "role_too_low", f"{command.type} needs the role {needed}{on}, and {principal.name} has {role}."
        )
    if not isinstance(command, PublishRelease | RemovePipeline) or thing is None:
        return
    record = of.pipeline(command.pipeline)
    if record is None:
        check_new(principal, "pipeline", command.pipeline, grants)
    elif not has_grant(principal, needed, thing, grants):
        check_owner(principal, record.name, record.owner)


def has_grant(principal: Principal, needed: AccessRole, thing: Thing, grants: Iterable[AccessGrant]) -> bool:
    """True when a grant gives a principal the role, whoever the owner is."""
    grant = grant_on(principal, thing, grants)
    return grant is not None and grant.role.includes(needed)


def check_new(principal: Principal, kind: Kind, name: str, grants: Iterable[AccessGrant]) -> None:
    """Raise AccessDeniedError if a principal may not create a pipeline or dataset of this name.

    Otherwise another team could get what rules and grants give to names that begin like this.
    """
    by = holders(kind, name, grants)
    if by and principal.role is not AccessRole.ADMIN and not any(map(principal.owns, by)):
        raise AccessDeniedError(
            "name_reserved",
            f"{kind} {name} would have a name of {', '.join(sorted(by))}: choose another name, or let an "
            f"admin grant {principal.name} the role author on it (`nimbus access grant`).",
        )


def check_role(principal: Principal, needed: AccessRole, what: str) -> None:
    """Raise AccessDeniedError if a principal has a lower role."""
    if not principal.role.includes(needed):
        raise AccessDeniedError(
            "role_too_low", f"{what} needs the role {needed}, and {principal.name} has {principal.role}."
        )


def check_owner(principal: Principal, pipeline: str, owner: str | None) -> None:
    """Raise AccessDeniedError if the principal does not own a pipeline of the catalog and is no admin."""
    if principal.role is not AccessRole.ADMIN and not principal.owns(owner):
        whose = f"belongs to {owner}" if owner else "has no owner"
        raise AccessDeniedError(
            "not_owner",
            f"pipeline {pipeline} {whose}, so {principal.name} may not change it: an admin can "
            f"(`nimbus pipeline own {pipeline} OWNER`).",
        )


def as_of_now(
    principal: Principal, tokens: Mapping[str, Token], grants: Grants | None, now: datetime
) -> Principal:
    """The principal with the current role of its token or its groups.

    Args:
        principal: The principal from a command.
        tokens: Tokens of the cluster. Tokens of a scheduler's file are checked by that scheduler alone.
        grants: Grants of the identity provider's groups; None: there is no provider.
        now: The time.

    Raises:
        AccessDeniedError: the token was revoked, or has expired; or the groups have no role any more.
    """
    if principal.source is PrincipalSource.OIDC:
        # The end of the login is not checked: it was valid when the command came, and may last only minutes.
        grant = (grants or Grants(issuer="")).of(principal.name, principal.issuer, principal.groups)
        return replace(principal, role=grant.role, teams=grant.teams)
    if principal.source is not PrincipalSource.TOKEN:
        return principal
    token = tokens.get(principal.token_id)
    if token is None or token.is_expired(now):
        raise AccessDeniedError(
            "token_revoked",
            f"token {principal.token_id} of {principal.name} was revoked, or has expired, before the leader "
            "decided: nothing was done.",
        )
    return replace(principal, role=token.role, teams=token.teams)
