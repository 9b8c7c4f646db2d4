"""The receivers of alerts: `alerts.targets`, with the keys of each kind of target."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr

from nimbus.config import texts
from nimbus.config.checking import Strict
from nimbus.config.problems import KeyPath, SuggestingError
from nimbus.config.values import AbsoluteFile, one_of
from nimbus.domain.alerts import AlertEvent

_KEYS = {
    "webhook": (("url",), ("secret_file", "secret_variable")),
    "apprise": ((), ("secret_file", "secret_variable")),
    "mail": (("smtp", "sender", "to"), ("tls", "username", "secret_file", "secret_variable")),
}
"""Required and optional keys of each kind of target."""
_SPELLED = {"sender": "from"}
_ADDRESS = re.compile(r"[^@\s<>,;\"]+@[^@\s<>,;\"]+")
_SERVER = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})")
MOST_RULES = 16


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _smtp(value: object) -> str:
    match = _SERVER.fullmatch(value) if isinstance(value, str) else None
    if not isinstance(value, str) or match is None or not 0 < int(match["port"]) <= 65535:
        raise SuggestingError(
            f"must be host:port of a mail server, such as mail.example.com:587, not {value}"
        )
    return value


_address = texts.fitting(_ADDRESS, "{} is not a mail address, such as oncall@example.com")


def _addresses(value: object) -> object:
    return [value] if isinstance(value, str) else value


Address = Annotated[str, BeforeValidator(_address)]
Events = Annotated[list[Annotated[AlertEvent, one_of(AlertEvent)]], Field(min_length=1)]


class Notify(Strict):
    """Which events are sent to one target."""

    on: Events
    """Events that cause an alert."""
    to: Annotated[str, BeforeValidator(texts.plain_name)]
    """Name of a target, of `alerts.targets` in the configuration."""


class AlertTarget(Strict):
    """One target. Its keys depend on its kind."""

    kind: Literal["webhook", "mail", "apprise"]
    url: Annotated[SecretStr | None, Field(strict=False)] = None
    smtp: Annotated[str, BeforeValidator(_smtp)] | None = None
    """Mail server, `host:port`; for mail only."""
    sender: Annotated[Address | None, Field(alias="from")] = None
    to: Annotated[list[Address], BeforeValidator(_addresses), Field(min_length=1)] | None = None
    tls: Literal["starttls", "tls", "none"] = "starttls"
    username: str | None = None
    secret_file: AbsoluteFile | None = None
    """Webhook: the key for signatures. Mail: the user's password. Apprise: the URL."""
    secret_variable: Annotated[str, BeforeValidator(texts.variable_name)] | None = None


def alert_target_faults(name: str, target: AlertTarget) -> Iterator[tuple[KeyPath, str]]:
    """Faults in the combination of a target's keys."""
    for key, message in _key_faults(target):
        yield ("alerts", "targets", name, _SPELLED.get(key, key)), message


def _key_faults(target: AlertTarget) -> Iterator[tuple[str, str]]:
    required, optional = _KEYS[target.kind]
    for key in required:
        if getattr(target, key) is None:
            yield key, f"is missing; {_a(target.kind)} target needs it"
    given = {key for key in target.model_fields_set if getattr(target, key) is not None}
    for key in sorted(given - {"kind", *required, *optional}):
        yield key, f"{_a(target.kind)} target has no {_SPELLED.get(key, key)}; remove it"
    if target.url is not None and not _is_url(target.url.get_secret_value()):
        yield "url", "must be http(s)://host/path"  # it is not shown: it may be a secret
    if target.secret_file is not None and target.secret_variable is not None:
        yield "secret_variable", "secret_file is given as well; keep one of them"
    has_secret = target.secret_file is not None or target.secret_variable is not None
    if target.kind == "apprise" and not has_secret:
        yield "secret_file", "is missing; an apprise target has its URL in secret_file or secret_variable"
    if target.kind == "mail" and (target.username is not None) != has_secret:
        yield (
            "username",
            "username and secret_file (or secret_variable) belong together; give both, or neither",
        )


def _a(kind: str) -> str:
    return f"an {kind}" if kind == "apprise" else f"a {kind}"
