"""What the doctor asks of targets of alerts: can their secrets be read, does anybody listen. None raises."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nimbus.cli.findings import Finding, Verdict

if TYPE_CHECKING:
    from nimbus.config import Settings
    from nimbus.config.alert_targets import AlertTarget

_DEADLINE_S = 3.0
_PORTS = {"http": 80, "https": 443}


def alert_targets_of(settings: Settings, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Look at each target, without sending anything."""
    from nimbus.bootstrap.alerts import secret_of
    from nimbus.ports import AlertNotSentError

    for name, target in settings.alerts.targets.items():
        check, (host, port) = f"alert target {name}", _place(target)
        try:
            secret_of(name, target, environ)
        except AlertNotSentError as exc:
            yield Finding(check, Verdict.FAIL, str(exc), "correct secret_file or secret_variable")
            continue
        try:
            socket.create_connection((host, port), _DEADLINE_S).close()
        except OSError as exc:
            advice = "correct it, or let this host reach it: alerts wait until then"
            yield Finding(check, Verdict.FAIL, f"{host}:{port}: {exc.strerror or exc}", advice)
        else:
            yield Finding(
                check, Verdict.OK, f"{host}:{port} listens; `nimbus alert test {name}` sends a message"
            )


def _place(target: AlertTarget) -> tuple[str, int]:
    if target.smtp is not None:
        host, _, port = target.smtp.rpartition(":")
        return host.strip("[]"), int(port)
    parts = urlsplit("" if target.url is None else target.url.get_secret_value())
    return parts.hostname or "", parts.port or _PORTS[parts.scheme]
