"""Doctor's checks of other services: alert targets, collectors, the identity provider. None raises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nimbus.cli.findings import Finding, Level, listens

if TYPE_CHECKING:
    from nimbus.config import Settings
    from nimbus.config.alert_targets import AlertTarget

_PORTS = {"http": 80, "https": 443}


def alert_targets_of(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Is each target's secret readable, and does it accept connections? No message is sent."""
    from nimbus.bootstrap.alerts import missing_extras, secret_of
    from nimbus.ports import AlertNotSentError

    missing = {problem.key: problem for problem in missing_extras(settings)}
    for name, target in settings.alerts.targets.items():
        check, problem = f"alert target {name}", missing.get(f"alerts.targets.{name}")
        if problem is not None:
            yield Finding(check, Level.FAIL, "the extra apprise is not installed", problem.message)
            continue
        try:
            secret = secret_of(name, target, environ)
        except AlertNotSentError as exc:
            yield Finding(check, Level.FAIL, str(exc), "correct secret_file or secret_variable")
            continue
        yield _known(check, secret or "") if target.kind == "apprise" else _listens(check, target)


def _known(check: str, url: str) -> Finding:
    """Does Apprise know the URL? Only a message would show that the service exists."""
    from nimbus.adapters.alerts import service_of
    from nimbus.ports import AlertNotSentError

    try:
        service_of(url)
    except AlertNotSentError as exc:
        return Finding(check, Level.FAIL, str(exc), "correct the URL")
    return Finding(check, Level.OK, f"Apprise knows its URL; {_test(check)}")


def _listens(check: str, target: AlertTarget) -> Finding:
    host, port = _place(target)
    advice = "correct it, or let this host reach it: alerts wait until then"
    return listens(check, host, port, advice, _test(check))


def _test(check: str) -> str:
    return f"`nimbus alert test {check.rpartition(' ')[2]}` sends a message"


def _place(target: AlertTarget) -> tuple[str, int]:
    if target.smtp is not None:
        host, _, port = target.smtp.rpartition(":")
        return host.strip("[]"), int(port)
    parts = urlsplit("" if target.url is None else target.url.get_secret_value())
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]


def telemetry_of(settings: Settings) -> Iterator[Finding]:
    """Is the library of each collector installed, and is a server there? No data is sent."""
    from nimbus.adapters.telemetry.sink import read_headers
    from nimbus.bootstrap.telemetry import missing_extras
    from nimbus.ports import TelemetryNotSentError

    missing = {problem.key: problem.message for problem in missing_extras(settings)}
    traces, lineage = settings.telemetry.traces, settings.telemetry.lineage
    for kind, section, url in (
        ("traces", traces, None if traces is None else traces.endpoint),
        ("lineage", lineage, None if lineage is None else lineage.url),
    ):
        check = f"telemetry.{kind}"
        if section is None:
            continue
        if check in missing:
            yield Finding(check, Level.FAIL, "its library is not installed", missing[check])
            continue
        try:
            read_headers(section.headers_file)
        except TelemetryNotSentError as exc:
            yield Finding(check, Level.FAIL, str(exc), "correct headers_file")
            continue
        if url is not None:
            parts = urlsplit(url)
            advice = f"correct it, or let this host reach it: {kind} waits, and is dropped after some time"
            yield listens(check, parts.hostname or "", parts.port or _PORTS[parts.scheme], advice)


def identity_provider_of(settings: Settings) -> Iterator[Finding]:
    """Fetch the provider's description and keys, as a scheduler does."""
    from prometheus_client import CollectorRegistry

    from nimbus.bootstrap.access import build_jwts, build_provider
    from nimbus.config import InvalidConfigurationError
    from nimbus.ports import IdentityProviderError

    check = "identity provider"
    try:
        provider = build_provider(settings, build_jwts(settings), CollectorRegistry())
        if provider is None:
            return
        keys = asyncio.run(provider.look())
    except InvalidConfigurationError as exc:
        yield Finding(check, Level.FAIL, "the extra oidc is not installed", exc.problems[0].message)
    except IdentityProviderError as exc:
        advice = "correct oidc.issuer, or let this host reach it: tokens of Nimbus work without it"
        yield Finding(check, Level.FAIL, f"{settings.oidc.issuer}: {exc}", advice)
    else:
        yield Finding(check, Level.OK, f"{settings.oidc.issuer} publishes keys for signatures: {keys}")
