"""Access control: roles, grants, tokens, and the principal that a command carries to the leader. Pure.

Also which pipelines may use which secrets (`worker.secrets.allow`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Literal

from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.pipeline import PipelineSpec

MAX_TOKENS = 300
"""Limit of tokens: they are kept in one record with the other settings of the cluster."""
MAX_GRANTS = 300
"""Limit of grants, for the same reason."""


class AccessRole(StrEnum):
    """What a principal may do. Each role includes the roles above it in this list."""

    NONE = "none"
    """Nothing. As the role of a token: only what grants add."""
    STATUS = "status"
    """Sees pipelines and runs: that a run has failed, and not why."""
    LOGS = "logs"
    """Also reads logs, and the reasons of failures."""
    VIEWER = "viewer"
    """Also reads data: outputs, results, parameters, datasets, variables, definitions."""
    OPERATOR = "operator"
    """Also starts, stops, retries, pauses; activates published releases; sets pools, variables, cordons."""
    AUTHOR = "author"
    """Also publishes and removes own pipelines."""
    ADMIN = "admin"
    """Everything: pipelines of others, owners, tokens, abdication."""

    @property
    def rank(self) -> int:
        """The place in this list: a higher role has a higher one."""
        return _ROLES.index(self)

    def includes(self, needed: AccessRole) -> bool:
        """True when this role is `needed` or higher."""
        return self.rank >= needed.rank


_ROLES = tuple(AccessRole)


class PrincipalSource(StrEnum):
    """How a principal was authenticated."""

    ANONYMOUS = "anonymous"
    """Not at all: the scheduler listens on loopback and requires no authentication."""
    TOKEN = "token"  # noqa: S105 - a word
    """By a token of the cluster, which the leader looks up again."""
    FILE = "file"
    """By a token in the file of the scheduler that answered."""
    WEBHOOK = "webhook"
    """By the signature of a request."""
    OIDC = "oidc"
    """By a token that an identity provider signed; the leader looks up again what its groups may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token, without its secret."""

    id: str
    name: str
    """Name of the person or program that has the token."""
    role: AccessRole
    teams: tuple[str, ...] = ()
    """The holder also owns the pipelines of these teams."""
    sha256: str
    """SHA-256 of the secret, which is random: 64 hexadecimal characters."""
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        """True when the token is no longer valid."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller of a request, as the scheduler authenticated it. A command carries it to the leader."""

    name: str
    role: AccessRole
    source: PrincipalSource
    teams: tuple[str, ...] = ()
    token_id: str = ""
    """Id of the Nimbus token; empty: there is none."""
    issuer: str = ""
    """The identity provider that signed the login; empty: none."""
    groups: tuple[str, ...] = ()
    """Groups that the provider names and that the configuration lists."""
    expires_at: datetime | None = None
    """When the login at the provider ends."""
    address: str = ""
    """Address of the peer of the connection: the client, or a proxy in front of it."""
    reason: str = ""
    """The reason that the caller gave."""

    @property
    def owner(self) -> str | None:
        """Owner of a pipeline that this principal is the first to publish; None: admins alone."""
        if self.source is PrincipalSource.ANONYMOUS:
            return None
        return next(iter(self.teams), self.name)

    @property
    def account(self) -> str:
        """The account that rate limits count; empty: there is none, so the address is used instead."""
        return self.token_id or (self.name if self.source is PrincipalSource.OIDC else "")

    def owns(self, owner: str | None) -> bool:
        """True when `owner` is this principal or one of its teams."""
        return owner is not None and owner in (self.name, *self.teams)


Kind = Literal["pipeline", "dataset", "variable"]


@dataclass(frozen=True, slots=True)
class Thing:
    """Something that a grant can be on. A run, a log or an output is that of its pipeline."""

    kind: Kind
    name: str
    owner: str | None = None
    """Of the pipeline, or of the pipeline that publishes the dataset. Variables have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessGrant:
    """A role on some things, beside the role that a principal has on everything."""

    who: str
    """A principal or a team."""
    role: AccessRole
    """STATUS to AUTHOR."""
    on: str
    """`pipeline:NAME`, `dataset:NAME`, `variable:NAME`; `team:NAME`: what this principal or team owns; or a
    prefix such as `finance_*`: everything with such a name."""
    reason: str = ""
    by: str = ""
    at: datetime

    def covers(self, thing: Thing) -> bool:
        """True when it is a grant on this."""
        if self.on.endswith("*"):
            return thing.name.startswith(self.on[:-1])
        return self.on == f"{thing.kind}:{thing.name}" or (
            thing.owner is not None and self.on == f"team:{thing.owner}"
        )

    def __str__(self) -> str:
        return f"grant of {self.role} to {self.who} on {self.on}"


def grant_on(principal: Principal, thing: Thing, grants: Iterable[AccessGrant]) -> AccessGrant | None:
    """The highest grant that a principal has on something; None: there is none."""
    fitting = (grant for grant in grants if principal.owns(grant.who) and grant.covers(thing))
    return max(fitting, key=lambda grant: grant.role.rank, default=None)


def role_on(principal: Principal, thing: Thing | None, grants: Iterable[AccessGrant]) -> AccessRole:
    """The role of a principal on something. None: on the cluster itself, which no grant is on."""
    granted = None if thing is None else grant_on(principal, thing, grants)
    if granted is None or principal.role.includes(granted.role):
        return principal.role
    return granted.role


def holders(kind: Kind, name: str, grants: Iterable[AccessGrant]) -> frozenset[str]:
    """Who may create something of this name: the authors of a prefix of it. Empty: any author may."""
    thing = Thing(kind, name)
    fitting = (grant for grant in grants if grant.on.endswith("*") and grant.covers(thing))
    return frozenset(grant.who for grant in fitting if grant.role.includes(AccessRole.AUTHOR))


class AccessDeniedError(RefusedError):
    """The principal may not do this."""

    exit_code = 7


DENIALS = frozenset(
    {"role_too_low", "not_owner", "not_reader", "token_revoked", "no_role", "not_granted", "name_reserved"}
)
"""The codes of AccessDeniedError."""


@dataclass(frozen=True, slots=True)
class SecretRules:
    """Checked by a scheduler when a release is published, and by a worker before each attempt."""

    allow: Mapping[str, Iterable[str]] | None = None
    """Patterns of the pipelines that may use a secret, by its name. None: each pipeline may use each secret.
    Otherwise a secret without an entry may be used by none."""

    def denied(self, pipeline: PipelineName, secrets: Iterable[str]) -> str | None:
        """Why a pipeline may not use some secrets; None: it may."""
        for secret in sorted(secrets):
            patterns = () if self.allow is None else self.allow.get(secret, ())
            if self.allow is not None and not any(fnmatchcase(pipeline, pattern) for pattern in patterns):
                return (
                    f"pipeline {pipeline} may not use secret {secret}: an operator must name the pipeline in "
                    f"worker.secrets.allow.{secret}"
                )
        return None

    def check(self, spec: PipelineSpec) -> None:
        """Check all secrets of a definition, also that of its webhook.

        Raises RefusedError: it may not use one of them.
        """
        names = {name for task in spec.tasks for name in task.secrets.values()}
        if spec.webhook is not None:
            names.add(spec.webhook.secret)
        if (why := self.denied(spec.name, names)) is not None:
            raise RefusedError("secret_denied", f"{why}.")
