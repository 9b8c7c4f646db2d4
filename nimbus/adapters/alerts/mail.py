"""A mail server, by SMTP."""

from __future__ import annotations

import re
import smtplib
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from email.utils import formatdate
from typing import Literal

from nimbus.domain.alert_text import AlertMessage
from nimbus.ports import AlertNotSentError

_REFUSALS = (
    *(ConnectionRefusedError, socket.gaierror, ssl.SSLError),
    *(smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused, smtplib.SMTPNotSupportedError),
)
"""After any of these errors the server has certainly not accepted the message."""
TIMEOUT_S = 5.0
"""For each answer of the server."""


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
        """Send one mail to all recipients."""
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
