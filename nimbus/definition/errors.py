"""What can be wrong with a pipeline's definition."""

from __future__ import annotations

from nimbus.config.problems import InvalidDocumentError


class InvalidDefinitionError(InvalidDocumentError):
    """A pipeline's definition cannot be used. `problems` has all that was found, each with its place."""

    code = "invalid_definition"
