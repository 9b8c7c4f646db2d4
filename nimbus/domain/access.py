"""Who may do what: roles, tokens, and the principal that a command carries to the leader."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from nimbus.domain.errors import RefusedError

MOST_TOKENS = 300
"""They lie in one record with the other settings of the cluster."""


class AccessRole(StrEnum):
    """What a principal may do; each includes those before it."""

    VIEWER = "viewer"
    """Reads."""
    OPERATOR = "operator"
    """Also starts, stops, retries, pauses; activates what is published; sets pools, variables and cordons."""
    AUTHOR = "author"
    """Also publishes and removes own pipelines."""
    ADMIN = "admin"
    """Everything: pipelines of others, owners, tokens, abdication."""

    def includes(self, needed: AccessRole) -> bool:
        """Whether this role may do what needs the other."""
        order = list(AccessRole)
        return order.index(self) >= order.index(needed)


class PrincipalSource(StrEnum):
    """How it is known who a principal is."""

    ANONYMOUS = "anonymous"
    """It is not: the scheduler listens on loopback and asks nobody."""
    TOKEN = "token"  # noqa: S105 - a word
    """By a token of the cluster, which the leader looks up again."""
    FILE = "file"
    """By a token in the file of the scheduler that answered."""
    WEBHOOK = "webhook"
    """By the signature of a request."""
    OIDC = "oidc"
    """By what an identity provider signed; the leader looks up again what its groups may do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A token, without its secret."""

    id: str
    name: str
    """Of the person or program that has it."""
    role: AccessRole
    teams: tuple[str, ...] = ()
    """Pipelines of these are own pipelines, too."""
    sha256: str
    """Of the secret, which is random: 64 hexadecimal characters."""
    created_at: datetime
    created_by: str = ""
    expires_at: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        """Whether it is of no use any more."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks, as a scheduler found it, and as it travels in a command."""

    name: str
    role: AccessRole
    source: PrincipalSource
    teams: tuple[str, ...] = ()
    token_id: str = ""
    """Of a token of ours; empty: it has none."""
    issuer: str = ""
    """The identity provider that knows who this is; empty: none does."""
    groups: tuple[str, ...] = ()
    """Those that the provider names and the configuration knows."""
    expires_at: datetime | None = None
    """When the login of the provider ends."""
    address: str = ""
    """Of the client's end of the connection: of a proxy, if there is one."""
    reason: str = ""
    """Why, in the words of who asks."""

    @property
    def owner(self) -> str | None:
        """Who owns a pipeline that this principal publishes first; None: nobody but admins."""
        if self.source is PrincipalSource.ANONYMOUS:
            return None
        return next(iter(self.teams), self.name)

    @property
    def account(self) -> str:
        """What its requests are counted by; empty: it has none, and its address may stand for it."""
        return self.token_id or (self.name if self.source is PrincipalSource.OIDC else "")

    def owns(self, owner: str | None) -> bool:
        """Whether a pipeline with this owner is an own one."""
        return owner is not None and owner in (self.name, *self.teams)


class AccessDeniedError(RefusedError):
    """The principal may not do this."""

    exit_code = 7


DENIALS = frozenset({"role_too_low", "not_owner", "token_revoked", "no_role"})
"""Codes of AccessDeniedError."""
