"""The settings of the answering scheduler, as read at its start."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from nimbus.api.models import Model
from nimbus.api.services import ApiServices


class SettingModel(Model):
    """One key of the configuration."""

    key: str
    """`section.name`."""
    value: Any
    """The value in the form of the file: durations as text, sizes in bytes; a secret is `***`."""
    origin: str
    """`default`, `file:line` or `environment NAME`."""
    default: bool
    """True: the value is the default."""


class SettingsModel(Model):
    """Every key, in the order of the example configuration."""

    answered_by: str
    settings: list[SettingModel]


def effective_settings(services: ApiServices) -> SettingsModel:
    """The settings of this scheduler, with masked secrets."""
    rows = [
        SettingModel(key=one.key, value=one.value, origin=one.origin, default=one.is_default)
        for one in services.settings
    ]
    return SettingsModel(answered_by=services.health.info().id, settings=rows)


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["cluster"], prefix=prefix)

    @routes.get("/settings")
    def settings() -> SettingsModel:
        """The settings of the answering scheduler, with their origins. Secrets are masked."""
        return effective_settings(services)

    return routes
