"""Builds what finds out who uses the API."""

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
    """Says who sends a request. Knows no token yet."""
    api = settings.api
    secure = settings.scheduler.advertise_url.startswith("https:")
    required = api.auth == "required"
    return Gate(required=required, per_s=api.requests_per_second, secure=secure, registry=registry, jwts=jwts)


def build_tls(settings: Settings, registry: CollectorRegistry) -> ReloadingTls | None:
    """What the API is served with; None: plain HTTP. CertificateError: the files cannot be used."""
    tls = settings.api.tls
    return None if tls is None else ReloadingTls(tls.certificate, tls.key, registry)


def build_access_follower(
    settings: Settings, store: AccessStore, gate: Gate, tls: ReloadingTls | None
) -> AccessFollower:
    """Tells the gate which tokens there are, and looks at the certificate."""
    path = settings.api.tokens_file
    file = None if path is None else TokensFile(path)
    return AccessFollower(store, gate, file, () if tls is None else (tls.look,))


def allowed_hosts(settings: Settings) -> list[str]:
    """What callers may name this scheduler, in `Host`: as it advertises itself, and as it was told."""
    scheduler = settings.scheduler
    advertised = urlsplit(scheduler.advertise_url).hostname or scheduler.host
    return [scheduler.host, advertised, *scheduler.allowed_hosts]
