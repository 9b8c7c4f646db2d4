"""Sends alerts to any service that Apprise supports, by its URL.

Apprise is an extra, and takes 0.3 s of processor time and 43 MB: it is imported when it is first used.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from nimbus.domain.alert_text import AlertMessage
from nimbus.domain.notify import AlertEvent
from nimbus.ports import AlertNotSentError

TIMEOUT_S = 5.0
"""Time limit to connect, and to get an answer; overrides the URL's settings."""
_WEIGHTS = {
    AlertEvent.FAILED.value: "failure",
    AlertEvent.TIMED_OUT.value: "failure",
    AlertEvent.RECOVERED.value: "success",
    AlertEvent.SUCCEEDED.value: "success",
    "test": "info",
}
"""Apprise's type for each event; any other event is a warning."""
_log = logging.getLogger("apprise")
_STATUS = re.compile(r"error=(\d{3})\b")


class AppriseService:
    """See `nimbus.ports.AlertTarget`. One recipient, so that a retry never repeats an accepted message."""

    def __init__(self, url: Callable[[], str | None]) -> None:
        """`url` is called at each try, so that a changed file is used. It is a secret."""
        self._url = url

    def send(self, message: AlertMessage) -> None:
        """Send the message by the service's own protocol."""
        url = self._url() or ""
        service = service_of(url)
        weight = _WEIGHTS.get(str(message.fields["event"]), "warning")
        with _answers() as statuses:
            accepted = service.notify(body=message.text, title=message.subject, notify_type=weight)
        if not accepted:
            what = f"answered {statuses[-1]}" if statuses else "not accepted"
            raise AlertNotSentError(f"{url.partition('://')[0]}: {what}", doubtful=not statuses)


def service_of(url: str) -> Any:
    """The service of a URL, an `apprise.NotifyBase`. Sends nothing.

    Raises:
        AlertNotSentError: Apprise does not support it, or it has several recipients. The URL is not shown.
    """
    import apprise

    _log.setLevel(logging.WARNING)
    _log.propagate = False  # its log may contain tokens
    service: Any = apprise.Apprise.instantiate(url, asset=apprise.AppriseAsset(async_mode=False))
    if service is None:
        raise AlertNotSentError("Apprise knows no service of this URL: see https://github.com/caronc/apprise")
    if len(service) > 1:
        raise AlertNotSentError(f"the URL names {len(service)} recipients: give each a target of its own")
    service.socket_connect_timeout = service.socket_read_timeout = TIMEOUT_S
    return service


@contextmanager
def _answers() -> Iterator[list[str]]:
    """Collect the HTTP statuses of Apprise's errors in this thread, which only its log contains."""
    thread, statuses = threading.get_ident(), list[str]()

    class Statuses(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == thread and (found := _STATUS.search(record.getMessage())):
                statuses.append(found[1])

    handler = Statuses(logging.WARNING)
    _log.addHandler(handler)
    try:
        yield statuses
    finally:
        _log.removeHandler(handler)
