"""A daemon's settings: checked once, where they were read, then trusted; and how they are shown."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, Field, PrivateAttr, SecretStr

from nimbus.config import sections
from nimbus.config.checking import Strict
from nimbus.config.services import OidcSection, TelemetrySection
from nimbus.config.targets import names_a_secret
from nimbus.config.values import format_duration

ANY_ADDRESS = frozenset({"0.0.0.0", "::", "[::]"})  # noqa: S104 - recognised, not listened on
DERIVED = ("scheduler.id", "scheduler.advertise_url", "worker.id", "worker.work_dir")
"""Keys whose default is derived from other keys or from the host."""


class Settings(Strict):
    """All settings of one daemon. Keys and defaults: `nimbus.config.sections`."""

    cluster: sections.ClusterSection = Field(default_factory=sections.ClusterSection)
    zookeeper: sections.ZooKeeperSection
    storage: sections.StorageSection
    scheduler: sections.SchedulerSection
    api: sections.ApiSection = Field(default_factory=sections.ApiSection)
    oidc: OidcSection = Field(default_factory=OidcSection)
    leadership: sections.LeadershipSection = Field(default_factory=sections.LeadershipSection)
    worker: sections.WorkerSection
    data: sections.DataSection = Field(default_factory=sections.DataSection)
    connect: sections.ConnectSection = Field(default_factory=sections.ConnectSection)
    spark: sections.SparkSection = Field(default_factory=sections.SparkSection)
    supervision: sections.SupervisionSection = Field(default_factory=sections.SupervisionSection)
    runs: sections.RunsSection = Field(default_factory=sections.RunsSection)
    retention: sections.RetentionSection = Field(default_factory=sections.RetentionSection)
    alerts: sections.AlertsSection = Field(default_factory=sections.AlertsSection)
    telemetry: TelemetrySection = Field(default_factory=TelemetrySection)
    sync: sections.SyncSection = Field(default_factory=sections.SyncSection)
    artifacts: sections.ArtifactsSection = Field(default_factory=sections.ArtifactsSection)
    waits: sections.WaitsSection = Field(default_factory=sections.WaitsSection)
    log: sections.LogSection = Field(default_factory=sections.LogSection)

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)

    @property
    def origins(self) -> Mapping[str, str]:
        """The origin of each value, by dotted key: `default`, `file:line` or `environment NAME`."""
        return MappingProxyType(dict(self._origins))

    @property
    def store_folder(self) -> Path | None:
        """The folder with the state of a single scheduler; None: the state is in ZooKeeper."""
        return self.scheduler.state_dir / "store" if self.leadership.elector == "single" else None

    def with_origins(self, origins: Mapping[str, str]) -> Settings:
        """Return the same settings with these origins."""
        known = self.model_copy()
        known._origins = dict(origins)
        return known


def settings_keys() -> dict[tuple[str, str], Any]:
    """Every key of the configuration, as section and name, with the type of its value."""
    keys = {}
    for section, field in Settings.model_fields.items():
        model = field.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            for name, leaf in model.model_fields.items():
                keys[section, leaf.alias or name] = leaf.annotation
    return keys


def with_derived(data: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in derived defaults. A default whose sources are missing is left out."""
    filled: dict[str, Any] = {
        name: {} if section is None and name in Settings.model_fields else section
        for name, section in data.items()
    }
    for name in ("zookeeper", "storage", "scheduler", "worker"):
        filled.setdefault(name, {})
    if _is_single(filled.get("leadership")) and isinstance(filled["zookeeper"], Mapping):
        filled["zookeeper"] = {"hosts": "", **filled["zookeeper"]}
    for dotted in DERIVED:
        section, _, key = dotted.partition(".")
        part = filled[section]
        if isinstance(part, Mapping) and part.get(key) is None:
            value = _derived(dotted, filled)
            filled[section] = {k: v for k, v in part.items() if k != key} | (
                {} if value is None else {key: value}
            )
    return filled


def _is_single(leadership: object) -> bool:
    return isinstance(leadership, Mapping) and leadership.get("elector") == "single"


def _has_tls(api: object) -> bool:
    return isinstance(api, Mapping) and api.get("tls") is not None


def _derived(dotted: str, data: Mapping[str, Any]) -> str | None:
    scheduler = data["scheduler"]
    if not isinstance(scheduler, Mapping):
        return None
    match dotted:
        case "scheduler.id":
            return socket.gethostname()
        case "scheduler.advertise_url":
            host, port = scheduler.get("host", "127.0.0.1"), scheduler.get("port", 8470)
            if not isinstance(host, str) or not isinstance(port, int) or isinstance(port, bool):
                return None
            reachable = socket.gethostname() if host in ANY_ADDRESS else host
            scheme = "https" if _has_tls(data.get("api")) else "http"
            return (
                f"{scheme}://[{reachable}]:{port}" if ":" in reachable else f"{scheme}://{reachable}:{port}"
            )
        case "worker.id":
            return scheduler.get("id")
        case _:
            state_dir = scheduler.get("state_dir")
            return f"{state_dir.rstrip('/')}/worker" if isinstance(state_dir, str) else None


MASK = "***"
"""Shown instead of a secret."""
_DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Shown:
    """One key of the configuration."""

    key: str
    """`section.name`."""
    value: Any
    """JSON data; durations as in the file, sizes in bytes."""
    origin: str
    """`default`, `file:line` or `environment NAME`."""

    @property
    def is_default(self) -> bool:
        """True if neither file nor environment sets it."""
        return self.origin == _DEFAULT

    @property
    def text(self) -> str:
        """The value as one line of YAML."""
        if isinstance(self.value, str):
            return self.value
        return json.dumps(self.value, ensure_ascii=False)


def shown(settings: Settings) -> Iterator[Shown]:
    """Every key, in the order of the example configuration."""
    for section, name in settings_keys():
        part = getattr(settings, section)
        fields = {field.alias or attribute: attribute for attribute, field in type(part).model_fields.items()}
        key = f"{section}.{name}"
        yield Shown(key, _plain(getattr(part, fields[name])), settings.origins.get(key, _DEFAULT))


def _plain(value: Any) -> Any:
    match value:
        case SecretStr():
            return MASK
        case timedelta():
            return format_duration(value)
        case BaseModel():
            return {name: _plain(part) for name, part in value if part is not None}
        case Mapping():
            return {
                str(name): MASK if names_a_secret(str(name)) else _plain(part) for name, part in value.items()
            }
        case list() | tuple():
            return [_plain(item) for item in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
