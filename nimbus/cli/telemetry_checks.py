"""Doctor's checks of trace and lineage collectors: is the library installed, is a server there?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from nimbus.cli.findings import Finding, Verdict, listens

if TYPE_CHECKING:
    from nimbus.config import Settings

_PORTS = {"http": 80, "https": 443}


def telemetry_of(settings: Settings) -> Iterator[Finding]:
    """Check each collector without sending data. None raises."""
    from nimbus.adapters.telemetry.requests_session import read_headers
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
            yield Finding(check, Verdict.FAIL, "its library is not installed", missing[check])
            continue
        try:
            read_headers(section.headers_file)
        except TelemetryNotSentError as exc:
            yield Finding(check, Verdict.FAIL, str(exc), "correct headers_file")
            continue
        if url is not None:
            parts = urlsplit(url)
            advice = f"correct it, or let this host reach it: {kind} waits, and is dropped after some time"
            yield listens(check, parts.hostname or "", parts.port or _PORTS[parts.scheme], advice)
