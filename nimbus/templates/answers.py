"""What is wrong with a template."""

from __future__ import annotations

from typing import NamedTuple

from nimbus.domain.errors import NimbusError


class Fault(NamedTuple):
    """A fault in a template."""

    message: str
    suggestion: str | None = None
    line: int | None = None


class TemplateError(NimbusError):
    """A template cannot be rendered, or exceeds the limits, because of its text or its values."""

    code = "template"
    exit_code = 2

    def __init__(self, message: str, at: int | None = None) -> None:
        super().__init__(message)
        self.at = at
        """Index of the template, from 0; None: all of them together."""


def short(text: str) -> str:
    """A template, shortened for messages."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
