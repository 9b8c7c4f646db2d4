"""Faults of a definition."""

from __future__ import annotations

from typing import NamedTuple

from nimbus.config.problems import InvalidDocumentError, KeyPath
from nimbus.domain.wording import Suggestion


class KeyFault(NamedTuple):
    """A fault at a key of a definition."""

    path: KeyPath
    message: str
    suggestion: Suggestion = None


class InvalidDefinitionError(InvalidDocumentError):
    """A pipeline's definition is not valid. `problems` lists all faults, each with its place."""

    code = "invalid_definition"
