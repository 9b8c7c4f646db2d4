"""Builds the authentication of the API."""

from __future__ import annotations

from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from nimbus.access.gate import Gate
from nimbus.access.oidc import JwtVerifier
from nimbus.api.tls import ReloadingTls
from nimbus.config import Settings
from nimbus.ports import AccessStore
from nimbus.scheduler.access_follower import AccessFollower, TokensFile


def build_gate(settings: Settings, jwts: JwtVerifier | None, registry: CollectorRegistry) -> Gate:
    """The gate, which identifies the sender of a request. It has no tokens yet."""
    api = settings.api
    secure = settings.scheduler.advertise_url.startswith("https:")
    required = api.auth == "required"
    return Gate(required=required, per_s=api.requests_per_second, secure=secure, registry=registry, jwts=jwts)


def build_tls(settings: Settings, registry: CollectorRegistry) -> ReloadingTls | None:
    """TLS of the API; None: plain HTTP. CertificateError: the files cannot be used."""
    tls = settings.api.tls
    return None if tls is None else ReloadingTls(tls.certificate, tls.key, registry)


def build_access_follower(
    settings: Settings, store: AccessStore, gate: Gate, tls: ReloadingTls | None
) -> AccessFollower:
    """The follower, which updates the gate's tokens and checks the certificate.

    Raises:
        TokensFileError: the tokens file cannot be read.
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
