"""Errors of a pipeline's definition."""

from __future__ import annotations

from nimbus.config.problems import InvalidDocumentError


class InvalidDefinitionError(InvalidDocumentError):
    """A pipeline's definition is not valid. `problems` lists all faults, each with its place."""

    code = "invalid_definition"
