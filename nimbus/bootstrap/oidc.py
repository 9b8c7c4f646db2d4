"""Builds the identity provider objects of the API and the engine from the section `oidc`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from nimbus.access.grants import Grant, Grants
from nimbus.access.oidc import JwtRules, JwtVerifier
from nimbus.config import InvalidConfigurationError, Settings
from nimbus.config.problems import Problem

if TYPE_CHECKING:
    from nimbus.adapters.oidc import OidcProvider


def build_grants(settings: Settings) -> Grants | None:
    """The rights of the provider's groups; None without a provider."""
    oidc = settings.oidc
    if oidc.issuer is None:
        return None
    return Grants(
        issuer=oidc.issuer,
        by_group={
            name: Grant(role=grant.role, teams=tuple(grant.teams)) for name, grant in oidc.groups.items()
        },
        default_role=oidc.default_role,
    )


def build_jwts(settings: Settings) -> JwtVerifier | None:
    """The verifier of the provider's signatures; None without a provider.

    Raises:
        InvalidConfigurationError: the extra is not installed.
    """
    oidc, grants = settings.oidc, build_grants(settings)
    if oidc.issuer is None or grants is None:
        return None
    if find_spec("jwt") is None or find_spec("cryptography") is None:
        message = "needs the extra oidc: pip install 'nimbus-scheduler[oidc]'"
        raise InvalidConfigurationError([Problem(file="configuration", key="oidc.issuer", message=message)])
    rules = JwtRules(
        issuer=oidc.issuer,
        audience=oidc.audience or oidc.client_id or "",
        client_id=oidc.client_id,
        algorithms=tuple(oidc.algorithms),
        name_claim=oidc.name_claim,
        groups_claim=oidc.groups_claim,
    )
    return JwtVerifier(rules, grants)


def build_provider(
    settings: Settings, jwts: JwtVerifier | None, registry: CollectorRegistry
) -> OidcProvider | None:
    """The client of the provider; None without a provider."""
    oidc = settings.oidc
    if jwts is None or oidc.issuer is None:
        return None
    from nimbus.adapters.oidc import Client, OidcProvider  # late: it loads httpx

    secret = None if oidc.client_secret is None else oidc.client_secret.get_secret_value()
    client = (
        None
        if oidc.client_id is None
        else Client(client_id=oidc.client_id, secret=secret, scopes=tuple(oidc.scopes))
    )
    return OidcProvider(oidc.issuer, client, jwts, registry)
