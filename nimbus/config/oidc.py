"""The identity provider: the section `oidc`. Without `issuer` there is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr

from nimbus.config import texts
from nimbus.config.checking import Strict
from nimbus.config.problems import KeyPath
from nimbus.config.values import one_of
from nimbus.domain.access import AccessRole

SafeUrl = Annotated[str, BeforeValidator(texts.safe_url)]
Role = Annotated[AccessRole, one_of(AccessRole)]
Claim = Annotated[str, Field(min_length=1, max_length=200)]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Only algorithms with public keys: no shared secrets, no unsigned tokens."""
MOST_GROUPS = 200


def _scopes() -> list[str]:
    return ["openid"]


def _algorithms() -> list[Algorithm]:
    return ["RS256", "ES256"]


class GroupGrant(Strict):
    """Rights of the members of a group."""

    role: Role
    teams: Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=20)] = Field(
        default_factory=list
    )
    """Owners of pipelines whose rights the members have."""


class Oidc(Strict):
    """Access by tokens of an identity provider."""

    issuer: SafeUrl | None = None
    """None: there is no provider."""
    client_id: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    """This cluster's client id at the provider. None: no browser logins."""
    client_secret: Annotated[SecretStr | None, Field(strict=False)] = None
    """None: a public client."""
    audience: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    """Required `aud` of tokens in requests. None: client_id."""
    redirect_uri: SafeUrl | None = None
    """None: /ui/login/callback of the host in the browser's request."""
    scopes: Annotated[list[Claim], Field(min_length=1, max_length=20)] = Field(default_factory=_scopes)
    algorithms: Annotated[list[Algorithm], Field(min_length=1)] = Field(default_factory=_algorithms)
    name_claim: Claim = "sub"
    groups_claim: Claim = "groups"
    groups: Annotated[dict[str, GroupGrant], Field(max_length=MOST_GROUPS)] = Field(default_factory=dict)
    default_role: Role | None = None
    """Role of users in none of `groups`. None: they are refused."""


def oidc_faults(oidc: Oidc) -> Iterator[tuple[KeyPath, str]]:
    """Faults in the combination of the section's keys."""
    if oidc.issuer is None:
        for name in sorted(oidc.model_fields_set):
            if getattr(oidc, name) != Oidc.model_fields[name].get_default(call_default_factory=True):
                yield ("oidc", name), f"{name} is given and issuer is not; give both, or neither"
        return
    if oidc.client_id is None and oidc.audience is None:
        yield ("oidc", "client_id"), "is missing, and audience as well: tokens for anybody would be taken"
    if oidc.client_id is None and oidc.client_secret is not None:
        yield ("oidc", "client_secret"), "client_secret is given and client_id is not; give both, or neither"
    if oidc.client_id is not None and "openid" not in oidc.scopes:
        yield ("oidc", "scopes"), "openid is not among them; without it the provider gives no ID token"
    if not oidc.groups and oidc.default_role is None:
        yield ("oidc", "groups"), "is empty, and default_role is not given: nobody could come in"
