"""Access control: roles, tokens, and the principal that a command carries to the leader."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from nimbus.domain.errors import RefusedError

MOST_TOKENS = 300
"""Limit of tokens: they are kept in one record with the other settings of the cluster."""


class AccessRole(StrEnum):
    """What a principal may do. Each role includes the roles above it in this list."""

    VIEWER = "viewer"
    """Reads."""
    OPERATOR = "operator"
    """Also starts, stops, retries, pauses; activates published releases; sets pools, variables, cordons."""
    AUTHOR = "author"
    """Also publishes and removes own pipelines."""
    ADMIN = "admin"
    """Everything: pipelines of others, owners, tokens, abdication."""

    def includes(self, needed: AccessRole) -> bool:
        """True when this role is `needed` or higher."""
        order = list(AccessRole)
        return order.index(self) >= order.index(needed)


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


class AccessDeniedError(RefusedError):
    """The principal may not do this."""

    exit_code = 7


DENIALS = frozenset({"role_too_low", "not_owner", "not_reader", "token_revoked", "no_role"})
"""The codes of AccessDeniedError."""
