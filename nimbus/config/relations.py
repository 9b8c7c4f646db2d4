"""Checks of values that are valid alone but not together. Each fault names both, and the remedy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple

from nimbus.config.problems import KeyPath
from nimbus.config.sections import NO_DATA
from nimbus.config.services import alert_target_faults, oidc_faults, telemetry_faults
from nimbus.config.settings import Settings
from nimbus.config.targets import target_faults
from nimbus.config.texts import is_loopback
from nimbus.config.values import format_duration

TCP_CONNECT = timedelta(seconds=2)
"""Longest wait for one ZooKeeper server to accept a connection (`leader.ZooKeeperConfig`)."""


class _NotBelow(NamedTuple):
    """One duration must be at least another."""

    key: str
    least: str
    why: str


_NOT_BELOW = (
    _NotBelow(
        "leadership.requeue_max", "leadership.requeue_min", "the pauses grow from the one to the other"
    ),
    _NotBelow(
        "leadership.forced_takeover_after",
        "zookeeper.session_timeout",
        "a dead leader's session may last that long while nothing is missing",
    ),
    _NotBelow(
        "leadership.forced_takeover_after",
        "leadership.guard_timeout",
        "a guard may take that long to decline",
    ),
    _NotBelow(
        "leadership.guard_timeout",
        "zookeeper.call_timeout",
        "the guard reads the catalog, and would count as silent while it still waits for a response",
    ),
    _NotBelow(
        "supervision.host_lost_after",
        "zookeeper.session_timeout",
        "a host that is only cut off may come back until then",
    ),
    _NotBelow(
        "supervision.claim_timeout",
        "worker.prepare_timeout",
        "a worker that still fetches the release would lose the attempt",
    ),
    _NotBelow(
        "supervision.host_lost_after",
        "supervision.beat_grace",
        "a host is given up only after somebody has looked",
    ),
)
_TOGETHER = (
    ("zookeeper", "username", "password"),
    ("storage", "access_key_id", "secret_access_key"),
    ("data", "access_key_id", "secret_access_key"),
)
"""Pairs of a name and its secret: both must be set, or neither."""


def relation_faults(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    """Yield each fault: its key and its message."""
    for rule in _NOT_BELOW:
        value, least = _value(settings, rule.key), _value(settings, rule.least)
        if value < least:
            section, _, name = rule.key.partition(".")
            message = (
                f"{name} ({format_duration(value)}) must not be below {rule.least} "
                f"({format_duration(least)}): {rule.why}; raise the one or lower the other"
            )
            yield (section, name), message
    yield from _access_faults(settings)
    yield from oidc_faults(settings.oidc)
    yield from _elector_faults(settings)
    yield from _session_faults(settings)
    yield from _tls_faults(settings)
    yield from _data_faults(settings)
    yield from _encryption_faults(settings)
    yield from _retention_faults(settings)
    if settings.connect.token is not None and settings.connect.url is None:
        message = "token is given and url is not; a server of the worker's own makes its token itself"
        yield ("connect", "token"), message
    for name, target in settings.spark.targets.items():
        yield from target_faults(name, target)
        if target.environment not in (None, *settings.worker.environments) and target.kind != "connect":
            known = ", ".join(sorted(settings.worker.environments)) or "none"
            message = f"is {target.environment}, and worker.environments has {known}"
            yield ("spark", "targets", name, "environment"), message
    yield from _alert_faults(settings)
    yield from telemetry_faults(settings.telemetry)
    for section, name, secret in _TOGETHER:
        has_name = _value(settings, f"{section}.{name}") is not None
        has_secret = _value(settings, f"{section}.{secret}") is not None
        if has_name != has_secret:
            there, missing = (name, secret) if has_name else (secret, name)
            yield (section, there), f"{there} is given and {missing} is not; give both, or neither"


def _encryption_faults(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    for name, section in (("storage", settings.storage), ("data", settings.data)):
        if section.kms_key_id is not None and section.encryption != "aws:kms":
            yield (name, "kms_key_id"), f"kms_key_id is given; set {name}.encryption to aws:kms, or remove it"


def _alert_faults(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    alerts = settings.alerts
    for name, target in alerts.targets.items():
        yield from alert_target_faults(name, target)
    for number, rule in enumerate(alerts.notify):
        if rule.to not in alerts.targets:
            yield ("alerts", "notify", number, "to"), f"there is no target {rule.to} in alerts.targets"


def _access_faults(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    """Faults that give strangers in the network access: no tokens, or tokens without TLS."""
    for key, address, without_tokens, at_home in _addresses(settings):
        name = key[-1]
        if settings.api.auth != "required":
            message = (
                f"{name} ({address}) is no loopback address and api.auth is optional: everybody who reaches "
                f"it {without_tokens}. Set api.auth to required and api.tokens_file to a file with a first "
                f"token (`nimbus token create NAME --role admin --file FILE`), or {name} to {at_home}"
            )
            yield key, message
        elif settings.api.tls is None and not settings.scheduler.advertise_url.startswith("https:"):
            message = (
                f"{name} ({address}) is no loopback address and api.tls is not set: whoever listens in the "
                "network could read the tokens. Set api.tls to {certificate: FILE, key: FILE}; where a proxy "
                f"ends TLS, set scheduler.advertise_url to its https address; or set {name} to {at_home}"
            )
            yield key, message


def _addresses(settings: Settings) -> Iterator[tuple[KeyPath, str, str, str]]:
    """Addresses off loopback: key, value, what anybody could do there without tokens, loopback equivalent."""
    host, metrics = settings.scheduler.host, settings.worker.metrics_address
    if not is_loopback(host):
        yield ("scheduler", "host"), host, "would be an admin", "127.0.0.1"
    if metrics is not None and not is_loopback(metrics[0]):
        shown = str(settings.worker.metrics)
        yield ("worker", "metrics"), shown, "could read the metrics", f"127.0.0.1:{metrics[1]}"


def _elector_faults(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    leadership, is_single = settings.leadership, settings.leadership.elector == "single"
    if not settings.zookeeper.hosts and not is_single:
        yield ("zookeeper", "hosts"), "is missing; it has no default"
    if not is_single:
        return
    if settings.zookeeper.hosts:
        message = "hosts is given and leadership.elector is single, which uses no ZooKeeper; remove one"
        yield ("zookeeper", "hosts"), message
    if not settings.worker.embedded:
        message = (
            "embedded is false and leadership.elector is single: the worker of a single scheduler runs in "
            "its process; set it to true, or use ZooKeeper"
        )
        yield ("worker", "embedded"), message
    if leadership.nofailover:
        message = "nofailover is true and leadership.elector is single: nobody would lead; remove one of them"
        yield ("leadership", "nofailover"), message


def _session_faults(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    timeout, margin = settings.zookeeper.session_timeout, settings.leadership.step_down_margin
    if margin >= timeout / 2:
        message = (
            f"step_down_margin ({format_duration(margin)}) must be below half of zookeeper.session_timeout "
            f"({format_duration(timeout)}), or a leader has no time to lead; lower the one or raise the other"
        )
        yield ("leadership", "step_down_margin"), message
    if timeout <= TCP_CONNECT:
        message = (
            f"session_timeout ({format_duration(timeout)}) must be above {format_duration(TCP_CONNECT)}, the "
            f"wait for one server's connection: otherwise one dead server costs the session; raise it"
        )
        yield ("zookeeper", "session_timeout"), message


def _data_faults(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    worker = settings.worker
    if worker.embedded and worker.data is None:
        yield ("worker", "data"), NO_DATA
    targets = settings.spark.targets.items()
    places: dict[KeyPath, str | None] = {
        ("spark", "targets", name, "executors_see"): target.executors_see for name, target in targets
    }
    places["worker", "executors_see"] = worker.executors_see
    for key, seen in places.items() if worker.data_uri is not None else ():
        if seen == "data":
            yield (
                key,
                "is data, but worker.data is a bucket; remove it, or write host if they run on this host",
            )
    if worker.data_uri is None:
        for name, field in type(settings.data).model_fields.items():
            if getattr(settings.data, name) != field.default:
                yield ("data", name), f"{name} is given and worker.data is no s3://bucket/prefix; remove it"


def _retention_faults(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    keep, worker = settings.retention, settings.worker
    for name, value in (("logs", keep.logs), ("outputs", keep.outputs)):
        if keep.history is not None and value is not None and value > keep.history:
            message = (
                f"{name} ({format_duration(value)}) must not be above retention.history "
                f"({format_duration(keep.history)}), with which they go; lower the one or raise the other"
            )
            yield ("retention", name), message
    if worker.data is None and (keep.outputs or keep.history):
        name = "outputs" if keep.outputs else "history"
        yield ("retention", name), f"{name} is given and worker.data is not: name the place of the outputs"


def _tls_faults(settings: Settings) -> Iterator[tuple[KeyPath, str]]:
    zookeeper = settings.zookeeper
    if not zookeeper.tls:
        for name, field in type(zookeeper).model_fields.items():
            if name.startswith("tls_") and getattr(zookeeper, name) != field.default:
                message = (
                    f"{name} is given and zookeeper.tls is false: set that to true, with ports in "
                    f"zookeeper.hosts that speak TLS, or remove this"
                )
                yield ("zookeeper", name), message
    elif zookeeper.tls_cert_file is None:
        for name in ("tls_key_file", "tls_key_password"):
            if getattr(zookeeper, name) is not None:
                yield ("zookeeper", name), f"{name} is given and tls_cert_file is not; give both, or neither"


def _value(settings: Settings, dotted: str) -> Any:
    section, _, name = dotted.partition(".")
    return getattr(getattr(settings, section), name)
