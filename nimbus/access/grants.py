"""Roles of the identity provider's groups. For the scheduler that gets the request, and for the leader."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from nimbus.domain.access import AccessDeniedError, AccessRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Role and teams of the members of a group."""

    role: AccessRole
    teams: tuple[str, ...] = ()
    """Members own the pipelines of these teams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """The grants of all groups, from the configuration."""

    issuer: str
    """The identity provider of the groups. Groups of another provider with equal names have no grant."""
    by_group: Mapping[str, Grant] = field(default_factory=dict)
    default_role: AccessRole | None = None
    """Role of people in none of these groups; None: they are refused."""

    def known(self, groups: Collection[str]) -> tuple[str, ...]:
        """Those of the groups that have a grant, in the order of the configuration."""
        return tuple(group for group in self.by_group if group in groups)

    def of(self, name: str, issuer: str, groups: Collection[str]) -> Grant:
        """The grant of a person: the highest role of the groups, and the teams of all of them.

        Raises:
            AccessDeniedError: none of the groups has a role, and there is no default role.
        """
        grants = [self.by_group[group] for group in self.known(groups)] if issuer == self.issuer else []
        if grants:
            highest = max((grant.role for grant in grants), key=list(AccessRole).index)
            teams = (team for grant in grants for team in grant.teams)
            return Grant(role=highest, teams=tuple(dict.fromkeys(teams)))
        if issuer == self.issuer and self.default_role is not None:
            return Grant(role=self.default_role)
        raise AccessDeniedError(
            "no_role",
            f"the identity provider knows {name}, and none of their groups has a role here: `oidc.groups` in "
            "the configuration gives roles to groups.",
        )
