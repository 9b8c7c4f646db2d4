"""Doctor's checks of alert targets: are their secrets readable, do they accept connections? None raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nimbus.cli.findings import Finding, Verdict, listens

if TYPE_CHECKING:
    from nimbus.config import Settings
    from nimbus.config.alert_targets import AlertTarget

_PORTS = {"http": 80, "https": 443}


def alert_targets_of(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check each target without sending a message."""
    from nimbus.bootstrap.alerts import missing_extras, secret_of
    from nimbus.ports import AlertNotSentError

    missing = {problem.key: problem for problem in missing_extras(settings)}
    for name, target in settings.alerts.targets.items():
        check, problem = f"alert target {name}", missing.get(f"alerts.targets.{name}")
        if problem is not None:
            yield Finding(check, Verdict.FAIL, "the extra apprise is not installed", problem.message)
            continue
        try:
            secret = secret_of(name, target, environ)
        except AlertNotSentError as exc:
            yield Finding(check, Verdict.FAIL, str(exc), "correct secret_file or secret_variable")
            continue
        yield _known(check, secret or "") if target.kind == "apprise" else _listens(check, target)


def _known(check: str, url: str) -> Finding:
    """Does Apprise know the URL? Only a message would show that the service exists."""
    from nimbus.adapters.alerts.apprise_service import service_of
    from nimbus.ports import AlertNotSentError

    try:
        service_of(url)
    except AlertNotSentError as exc:
        return Finding(check, Verdict.FAIL, str(exc), "correct the URL")
    return Finding(check, Verdict.OK, f"Apprise knows its URL; {_test(check)}")


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
