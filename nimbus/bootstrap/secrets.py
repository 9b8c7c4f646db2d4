"""Builds the provider of secrets, for workers and webhooks."""

from __future__ import annotations

from collections.abc import Mapping

from nimbus.config.sections import Secrets
from nimbus.worker.secrets import (
    CommandProvider,
    EnvironmentProvider,
    FolderProvider,
    PlugIn,
    Provider,
    SecretError,
    plugged_in,
)


def secret_provider(section: Secrets, environment: Mapping[str, str]) -> Provider | None:
    """The worker's provider of secrets.

    Raises:
        SecretError: a plug-in cannot be created, or a key of the provider is missing.
    """
    match section.provider:
        case None:
            return None
        case "file":
            if section.folder is None:
                raise SecretError("worker.secrets.provider is file: worker.secrets.folder is missing")
            return FolderProvider(section.folder)
        case "env":
            return EnvironmentProvider(dict(environment))
        case "command":
            if not section.command:
                raise SecretError("worker.secrets.provider is command: worker.secrets.command is missing")
            return CommandProvider(tuple(section.command), section.timeout)
        case place:
            return PlugIn(plugged_in(place), section.timeout)
