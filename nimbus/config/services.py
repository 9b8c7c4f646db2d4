"""Other services: receivers of alerts, the identity provider, receivers of traces and lineage.

What a key is for is told once, in `configs/nimbus.example.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SecretStr

from nimbus.config import texts
from nimbus.config.checking import Strict, kind_faults
from nimbus.config.problems import KeyPath, SuggestingError
from nimbus.config.values import AbsoluteFile, Flag, PositiveDuration, one_of
from nimbus.domain.cluster.access import AccessRole
from nimbus.domain.cluster.alerts import AlertEvent

_KEYS = {
    "webhook": (("url",), ("secret_file", "secret_variable")),
    "apprise": ((), ("secret_file", "secret_variable")),
    "mail": (("smtp", "sender", "to"), ("tls", "username", "secret_file", "secret_variable")),
}
"""Required and optional keys of each kind of target."""
_ADDRESS = re.compile(r"[^@\s<>,;\"]+@[^@\s<>,;\"]+")
_SERVER = re.compile(r"(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>\d{1,5})")
MAX_RULES = 16


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


class AlertTargetSection(Strict):
    """One target. Its keys depend on its kind."""

    kind: Literal["webhook", "mail", "apprise"]
    url: Annotated[SecretStr | None, Field(strict=False)] = None
    smtp: Annotated[str, BeforeValidator(_smtp)] | None = None
    sender: Annotated[Address | None, Field(alias="from")] = None
    to: Annotated[list[Address], BeforeValidator(_addresses), Field(min_length=1)] | None = None
    tls: Literal["starttls", "tls", "none"] = "starttls"
    username: str | None = None
    secret_file: AbsoluteFile | None = None
    secret_variable: Annotated[str, BeforeValidator(texts.variable_name)] | None = None


def alert_target_faults(name: str, target: AlertTargetSection) -> Iterator[tuple[KeyPath, str]]:
    """Faults in the combination of a target's keys."""
    for key, message in _key_faults(target):
        yield ("alerts", "targets", name, key), message


def _key_faults(target: AlertTargetSection) -> Iterator[tuple[str, str]]:
    yield from kind_faults(target, target.kind, *_KEYS[target.kind])
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


SafeUrl = Annotated[str, BeforeValidator(texts.safe_url)]
Role = Annotated[AccessRole, one_of(AccessRole)]
ShortText = Annotated[str, Field(min_length=1, max_length=200)]
Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Only algorithms with public keys: no shared secrets, no unsigned tokens."""
MAX_GROUPS = 200


def _algorithms() -> list[Algorithm]:
    return ["RS256", "ES256"]


class GroupGrant(Strict):
    """Rights of the members of a group."""

    role: Role
    teams: Annotated[list[Annotated[str, Field(min_length=1, max_length=100)]], Field(max_length=20)] = Field(
        default_factory=list
    )


class OidcSection(Strict):
    """Access by tokens of an identity provider."""

    issuer: SafeUrl | None = None
    client_id: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    client_secret: Annotated[SecretStr | None, Field(strict=False)] = None
    audience: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    redirect_uri: SafeUrl | None = None
    scopes: Annotated[list[ShortText], Field(min_length=1, max_length=20)] = Field(
        default_factory=lambda: ["openid"]
    )
    algorithms: Annotated[list[Algorithm], Field(min_length=1)] = Field(default_factory=_algorithms)
    name_claim: ShortText = "sub"
    groups_claim: ShortText = "groups"
    groups: Annotated[dict[str, GroupGrant], Field(max_length=MAX_GROUPS)] = Field(default_factory=dict)
    default_role: Role | None = None


def oidc_faults(oidc: OidcSection) -> Iterator[tuple[KeyPath, str]]:
    """Faults in the combination of the section's keys."""
    if oidc.issuer is None:
        for name in sorted(oidc.model_fields_set):
            if getattr(oidc, name) != OidcSection.model_fields[name].get_default(call_default_factory=True):
                yield ("oidc", name), f"{name} is given and issuer is not; give both, or neither"
        return
    if oidc.client_id is None and oidc.audience is None:
        yield ("oidc", "client_id"), "is missing, and audience as well: tokens for anybody would be taken"
    if oidc.client_id is None and oidc.client_secret is not None:
        yield ("oidc", "client_secret"), "client_secret is given and client_id is not; give both, or neither"
    if oidc.client_id is not None and "openid" not in oidc.scopes:
        yield ("oidc", "scopes"), "openid is not among them; without it the provider gives no ID token"
    if not oidc.groups and oidc.default_role is None:
        yield ("oidc", "groups"), "is empty, and default_role is not given: nobody could come in"


Endpoint = Annotated[str, BeforeValidator(texts.endpoint)]


class TracesSection(Strict):
    """An OTLP/HTTP collector of traces."""

    endpoint: Endpoint
    headers_file: AbsoluteFile | None = None
    ca_file: AbsoluteFile | None = None
    timeout: PositiveDuration = timedelta(seconds=10)


class LineageSection(Strict):
    """Receiver of OpenLineage's events: a server, or a file."""

    url: Endpoint | None = None
    file: AbsoluteFile | None = None
    namespace: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    headers_file: AbsoluteFile | None = None
    ca_file: AbsoluteFile | None = None
    timeout: PositiveDuration = timedelta(seconds=5)
    spark: Flag = False


class TelemetrySection(Strict):
    """Traces and lineage of runs."""

    traces: TracesSection | None = None
    lineage: LineageSection | None = None
    give_up_after: PositiveDuration = timedelta(hours=1)


def telemetry_faults(telemetry: TelemetrySection) -> Iterator[tuple[KeyPath, str]]:
    """Yield each fault: its key and its message."""
    lineage = telemetry.lineage
    if lineage is None:
        return
    if (lineage.url is None) == (lineage.file is None):
        given = "neither url nor file is given" if lineage.url is None else "url and file are given"
        yield ("telemetry", "lineage"), f"{given}: give one of them"
    for name in ("headers_file", "ca_file"):
        if getattr(lineage, name) is not None and lineage.url is None:
            yield ("telemetry", "lineage", name), f"{name} is given and url is not; remove it"
