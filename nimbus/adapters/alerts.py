"""The targets of alerts: a webhook, a mail server, and any service that Apprise supports.

Apprise is an extra, and takes 0.3 s of processor time and 43 MB: it is imported when it is first used.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import re
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from typing import Any, Literal
from urllib.parse import urlsplit

from nimbus.domain.cluster.alerts import AlertEvent, AlertMessage
from nimbus.ports import AlertNotSentError

TIMEOUT_S = 5.0
"""Time limit of each step: to connect, to send, to get an answer or its headers."""
ID_HEADER = "Idempotency-Key"
SIGNATURE_HEADER = "Nimbus-Signature"


def signature(secret: bytes, at_s: int, body: bytes) -> str:
    """`t=<seconds since 1970>,v1=<HMAC-SHA256 of "<t>.<body>", in hexadecimal>`."""
    mac = hmac.new(secret, f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={mac}"


class WebhookTarget:
    """See `nimbus.ports.AlertTarget`. Any status from 200 to 299 accepts; redirects are not followed."""

    def __init__(self, url: str, secret: Callable[[], str | None]) -> None:
        """`secret` is called at each try, so that a changed file is used."""
        self._url, self._secret = url, secret

    def send(self, message: AlertMessage) -> None:
        import httpx  # late: most schedulers have no webhook

        body = json.dumps({**message.fields, "text": message.text}).encode()
        headers = {"Content-Type": "application/json", ID_HEADER: message.id, "User-Agent": "nimbus"}
        if (secret := self._secret()) is not None:
            headers[SIGNATURE_HEADER] = signature(secret.encode(), int(time.time()), body)
        where = urlsplit(self._url).hostname  # the rest of a URL may be a secret
        try:
            with httpx.stream(
                "POST", self._url, content=body, headers=headers, timeout=TIMEOUT_S, trust_env=False
            ) as answer:
                status = answer.status_code  # the body is not read: it may be endless
        except (httpx.ConnectError, httpx.ConnectTimeout) as exc:
            why = str(exc) or "it took too long"
            raise AlertNotSentError(f"{where} cannot be reached: {why}", doubtful=False) from exc
        except httpx.HTTPError as exc:
            raise AlertNotSentError(f"{where}: {type(exc).__name__}", doubtful=True) from exc
        if not 200 <= status < 300:
            raise AlertNotSentError(f"{where} answered {status}")


_REFUSALS = (
    *(ConnectionRefusedError, socket.gaierror, ssl.SSLError),
    *(smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused, smtplib.SMTPNotSupportedError),
)
"""After any of these errors the server has certainly not accepted the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mailbox:
    """See `nimbus.ports.AlertTarget`. A message is accepted if the server accepted one recipient."""

    host: str
    port: int
    tls: Literal["starttls", "tls", "none"]
    sender: str
    recipients: Sequence[str]
    username: str | None
    password: Callable[[], str | None]
    """Called at each try, so that a changed file is used."""

    def send(self, message: AlertMessage) -> None:
        password, accepted = self.password(), False
        try:
            with self._connection() as server:
                if self.tls == "starttls":
                    server.starttls(context=ssl.create_default_context())
                if self.username is not None and password is not None:
                    server.login(self.username, password)
                server.send_message(self._mail(message))
                accepted = True
        except (OSError, smtplib.SMTPException) as exc:
            if accepted:  # the server answered QUIT with an error, or not at all
                return
            text = f"{self.host}:{self.port}: {type(exc).__name__}: {exc}"
            raise AlertNotSentError(text, doubtful=not isinstance(exc, _REFUSALS)) from exc

    def _connection(self) -> smtplib.SMTP:
        if self.tls == "tls":
            context = ssl.create_default_context()
            return smtplib.SMTP_SSL(self.host, self.port, timeout=TIMEOUT_S, context=context)
        return smtplib.SMTP(self.host, self.port, timeout=TIMEOUT_S)

    def _mail(self, message: AlertMessage) -> EmailMessage:
        mail = EmailMessage()
        mail["From"] = self.sender
        mail["To"] = ", ".join(self.recipients)
        mail["Subject"] = message.subject
        mail["Date"] = formatdate()
        mail["Message-ID"] = f"<{re.sub(r'[^A-Za-z0-9._-]', '-', message.id)}@nimbus>"
        mail.set_content(message.text)
        return mail


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
            if record.thread == thread and (match := _STATUS.search(record.getMessage())):
                statuses.append(match[1])

    handler = Statuses(logging.WARNING)
    _log.addHandler(handler)
    try:
        yield statuses
    finally:
        _log.removeHandler(handler)
