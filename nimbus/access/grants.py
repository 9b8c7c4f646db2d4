"""What the groups of an identity provider may do here. For the scheduler that is asked, and the leader."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from nimbus.domain.access import AccessDeniedError, AccessRole


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What the members of a group may do."""

    role: AccessRole
    teams: tuple[str, ...] = ()
    """Pipelines of these are own pipelines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """What the members of all groups may do, as the configuration says it."""

    issuer: str
    """The identity provider whose groups these are; groups of another one with equal names are none."""
    by_group: Mapping[str, Grant] = field(default_factory=dict)
    default_role: AccessRole | None = None
    """Of who is in none of these groups; None: they may not come in."""

    def known(self, groups: Collection[str]) -> tuple[str, ...]:
        """Those of the groups that give anything, in the order of the configuration."""
        return tuple(group for group in self.by_group if group in groups)

    def of(self, name: str, issuer: str, groups: Collection[str]) -> Grant:
        """What somebody may do: the highest role of the groups, and the teams of all of them.

        Raises:
            AccessDeniedError: none of the groups gives a role, and nothing else does.
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
