"""Builds the authentication of the API, also by the identity provider of the section `oidc`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from nimbus.access.gate import AccessGate
from nimbus.access.oidc import Grants, GroupRole, JwtRules, JwtVerifier
from nimbus.api.tls import ReloadingTls
from nimbus.config import InvalidConfigurationError, Settings
from nimbus.config.problems import Problem
from nimbus.ports import AccessStore
from nimbus.scheduler.followers import AccessFollower, TokensFile

if TYPE_CHECKING:
    from nimbus.adapters.oidc import OidcProvider


def build_gate(settings: Settings, jwts: JwtVerifier | None, registry: CollectorRegistry) -> AccessGate:
    """The gate, which identifies the sender of a request. It has no tokens yet."""
    api = settings.api
    secure = settings.scheduler.advertise_url.startswith("https:")
    required = api.auth == "required"
    return AccessGate(
        required=required, per_s=api.requests_per_second, secure=secure, registry=registry, jwts=jwts
    )


def build_tls(settings: Settings, registry: CollectorRegistry) -> ReloadingTls | None:
    """TLS of the API; None: plain HTTP. CertificateError: the files cannot be used."""
    tls = settings.api.tls
    return None if tls is None else ReloadingTls(tls.certificate, tls.key, registry)


def build_access_follower(
    settings: Settings, store: AccessStore, gate: AccessGate, tls: ReloadingTls | None
) -> AccessFollower:
    """The follower, which updates the gate's tokens and checks the certificate.

    Raises TokensFileError: the tokens file cannot be read.
    """
    path = settings.api.tokens_file
    file = None if path is None else TokensFile(path)
    if file is not None:
        file.check()
    return AccessFollower(store, gate, file, () if tls is None else (tls.look,))


def allowed_hosts(settings: Settings) -> list[str]:
    """Permitted values of `Host`: the advertised name, and the configured ones."""
    scheduler = settings.scheduler
    advertised = urlsplit(scheduler.advertise_url).hostname or scheduler.host
    return [scheduler.host, advertised, *scheduler.allowed_hosts]


def build_grants(settings: Settings) -> Grants | None:
    """The rights of the provider's groups; None without a provider."""
    oidc = settings.oidc
    if oidc.issuer is None:
        return None
    return Grants(
        issuer=oidc.issuer,
        by_group={
            name: GroupRole(role=grant.role, teams=tuple(grant.teams)) for name, grant in oidc.groups.items()
        },
        default_role=oidc.default_role,
    )


def build_jwts(settings: Settings) -> JwtVerifier | None:
    """The verifier of the provider's signatures; None without a provider.

    Raises InvalidConfigurationError: the extra is not installed.
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
    from nimbus.adapters.oidc import ClientRegistration, OidcProvider  # late: it loads httpx

    secret = None if oidc.client_secret is None else oidc.client_secret.get_secret_value()
    client = (
        None
        if oidc.client_id is None
        else ClientRegistration(client_id=oidc.client_id, secret=secret, scopes=tuple(oidc.scopes))
    )
    return OidcProvider(oidc.issuer, client, jwts, registry)
