"""Webhooks: checks a signed request, and takes the parameters of its run from it. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import PipelineName, RunId

REPLAY_WINDOW = timedelta(minutes=5)
"""Largest difference between the time of a request and our clock."""
WRONG_SIGNATURE = "the signature is not that of this path, body, timestamp and delivery id"
_DELIVERY = re.compile(r"[A-Za-z0-9._-]{1,128}")
_SIGNATURE = re.compile(r"sha256=[0-9a-f]{64}")
_PATH = re.compile(r"\{\{\s*body((?:\.[A-Za-z_]\w*)+)\s*\}\}")


class UnsignedRequestError(NimbusError):
    """A request has no signature or a wrong one. The message does not help to forge one."""

    code = "bad_signature"


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The configuration of a webhook, as of `nimbus.definition.models.WebhookKeys`."""

    secret: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Signed:
    """The signature headers of a request."""

    timestamp: str
    """Seconds since 1970, in decimal."""
    delivery: str
    """An id that the sender chooses. It is the same for each repetition of one request."""
    signature: str


def signature_of(secret: str, target: str, signed: Signed, body: bytes) -> str:
    """HMAC-SHA256 over timestamp, target, delivery id and body, so that none of them can be changed.

    `target`: the path after `/hooks/`. It has no dots, so it cannot be taken for a part of the delivery id.
    """
    text = f"{signed.timestamp}.{target}.{signed.delivery}.".encode() + body
    return "sha256=" + hmac.new(secret.encode(), text, hashlib.sha256).hexdigest()


def check_request(secret: str, target: str, signed: Signed, body: bytes, now: datetime) -> None:
    """Refuse a request that was not signed with this secret for this target, or not within `REPLAY_WINDOW`.

    Raises UnsignedRequestError: the message has the reason.
    """
    check_form(signed)
    if not hmac.compare_digest(signature_of(secret, target, signed, body), signed.signature):
        raise UnsignedRequestError(WRONG_SIGNATURE)
    if abs(now.timestamp() - int(signed.timestamp)) > REPLAY_WINDOW.total_seconds():
        raise UnsignedRequestError(
            f"the timestamp lies more than {REPLAY_WINDOW.total_seconds():.0f} s from the scheduler's time"
        )


def check_form(signed: Signed) -> None:
    """Raise UnsignedRequestError if a header is missing or malformed."""
    if not (signed.timestamp.isascii() and signed.timestamp.isdecimal() and len(signed.timestamp) <= 12):
        raise UnsignedRequestError("X-Nimbus-Timestamp must be the time in seconds since 1970")
    if _DELIVERY.fullmatch(signed.delivery) is None:
        raise UnsignedRequestError("X-Nimbus-Delivery must be 1 to 128 letters, digits, '.', '_', '-'")
    if _SIGNATURE.fullmatch(signed.signature) is None:
        raise UnsignedRequestError("X-Nimbus-Signature must be sha256= and 64 hexadecimal digits")


def run_of(pipeline: PipelineName, delivery: str) -> RunId:
    """The run id of a delivery. It is the same for each repetition, so that one delivery starts one run."""
    return RunId(f"{pipeline}-hook-{hashlib.sha256(delivery.encode()).hexdigest()[:20]}")


def path_fault(text: str) -> str | None:
    """The fault of a place in the body; None: it is valid."""
    if _PATH.fullmatch(text):
        return None
    return "must be a place in the request's body, such as {{ body.region }} or {{ body.order.id }}"


def parameters_from(webhook: Webhook, body: Any) -> dict[str, Any]:
    """Parameters from the body. Those that it does not have are left out, so that defaults apply."""
    given = {}
    for name, text in webhook.parameters.items():
        is_there, place = True, body
        for part in _steps(text):
            is_there = is_there and isinstance(place, dict) and part in place
            place = place[part] if is_there else None
        if is_there:
            given[name] = place
    return given


def _steps(text: str) -> list[str]:
    match = _PATH.fullmatch(text)
    return [] if match is None else match[1].strip(".").split(".")
