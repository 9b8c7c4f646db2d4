"""The HTTP session of both libraries, and the file with the headers of their requests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from requests import Response, Session

from nimbus.ports import TelemetryNotSentError


def new_session() -> Session:
    """A session that treats redirects as errors, and ignores proxies and passwords of the environment."""
    import requests

    session = requests.Session()
    session.trust_env = False
    session.hooks["response"].append(_refuse_redirection)
    return session


def _refuse_redirection(response: Response, **_named: object) -> None:
    """Raise for a redirect, which the trace exporter would accept and the lineage client would follow."""
    if 300 <= response.status_code < 400:
        response.close()
        raise TelemetryNotSentError(f"answered {response.status_code}: redirections are not followed")


def read_headers(file: Path | None) -> dict[str, str]:
    """The headers of a file: `Name: value`, one on each line.

    Raises:
        TelemetryNotSentError: it cannot be read, or a line is not a header. No value is shown.
    """
    if file is None:
        return {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is not UTF-8 text"
        raise TelemetryNotSentError(f"{file} cannot be read: {why}") from exc
    headers = {}
    for number, line in enumerate(lines, 1):
        name, colon, value = line.partition(":")
        if colon and name.strip():
            headers[name.strip()] = value.strip()
        elif line.strip():
            raise TelemetryNotSentError(f"{file}, line {number}: is not `Name: value`")
    return headers
