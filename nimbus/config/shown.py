"""Settings for display: written as in the file, with their origins, secrets masked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, SecretStr

from nimbus.config.load import settings_keys
from nimbus.config.settings import Settings
from nimbus.config.targets import names_a_secret
from nimbus.config.values import format_duration

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
            return {name: _plain(one) for name, one in value if one is not None}
        case Mapping():
            return {
                str(name): MASK if names_a_secret(str(name)) else _plain(one) for name, one in value.items()
            }
        case list() | tuple():
            return [_plain(one) for one in value]
        case None | bool() | int() | float() | str():
            return value
        case _:
            return str(value)
