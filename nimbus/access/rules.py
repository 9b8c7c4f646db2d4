"""Checks of roles and owners for commands. For the scheduler that gets the command, and for the leader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import TypeGuard

from nimbus.access.grants import Grants
from nimbus.domain.access import AccessDeniedError, AccessRole, Principal, PrincipalSource, Token
from nimbus.domain.commands import (
    Abdicate,
    Command,
    CreateToken,
    PublishRelease,
    PurgeRuns,
    RemoveDataset,
    RemovePipeline,
    RevokeToken,
    SetOwner,
    SetShare,
    Unreadable,
    WithdrawDataset,
)

_NEEDS: Mapping[type, AccessRole] = MappingProxyType(
    {
        Abdicate: AccessRole.ADMIN,
        PurgeRuns: AccessRole.ADMIN,
        CreateToken: AccessRole.ADMIN,
        RevokeToken: AccessRole.ADMIN,
        SetOwner: AccessRole.ADMIN,
        SetShare: AccessRole.ADMIN,
        PublishRelease: AccessRole.AUTHOR,
        RemovePipeline: AccessRole.AUTHOR,
        WithdrawDataset: AccessRole.AUTHOR,
        RemoveDataset: AccessRole.AUTHOR,
    }
)
"""Roles of commands. All others need the role operator."""


def needed_role(command: Command | Unreadable) -> AccessRole:
    """The lowest role that may send a command."""
    return _NEEDS.get(type(command), AccessRole.OPERATOR)


def needs_owner(
    command: Command | Unreadable, principal: Principal
) -> TypeGuard[PublishRelease | RemovePipeline]:
    """True when the permission depends on the owner of the command's pipeline."""
    return isinstance(command, PublishRelease | RemovePipeline) and principal.role is AccessRole.AUTHOR


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
