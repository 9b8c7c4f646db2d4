"""A webhook: one POST with JSON, signed."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from urllib.parse import urlsplit

from nimbus.domain.alert_text import AlertMessage
from nimbus.ports import AlertNotSentError

TIMEOUT_S = 5.0
"""Time limit of each step: to connect, to send, to get the response headers."""
ID_HEADER = "Idempotency-Key"
SIGNATURE_HEADER = "Nimbus-Signature"


def signature(secret: bytes, at_s: int, body: bytes) -> str:
    """`t=<seconds since 1970>,v1=<HMAC-SHA256 of "<t>.<body>", in hexadecimal>`."""
    mac = hmac.new(secret, f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={mac}"


class Webhook:
    """See `nimbus.ports.AlertTarget`. Any status from 200 to 299 accepts; redirects are not followed."""

    def __init__(self, url: str, secret: Callable[[], str | None]) -> None:
        """`secret` is called at each try, so that a changed file is used."""
        self._url, self._secret = url, secret

    def send(self, message: AlertMessage) -> None:
        """POST the message."""
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
