"""What a question about templates can come to."""

from __future__ import annotations

from typing import NamedTuple

from nimbus.domain.errors import NimbusError


class Fault(NamedTuple):
    """Something in a template that cannot work."""

    message: str
    suggestion: str | None = None
    line: int | None = None


class TemplateError(NimbusError):
    """A template cannot be rendered, or breaks the limits: the fault of its text or of its values."""

    code = "template"
    exit_code = 2

    def __init__(self, message: str, at: int | None = None) -> None:
        super().__init__(message)
        self.at = at
        """Which of the templates in question, counted from 0; None: all of them together."""


class TemplateHelperError(NimbusError):
    """The template helper cannot be had, through no fault of a template."""

    code = "template_helper"
    retryable = True


def short(text: str) -> str:
    """A template as messages show it."""
    return repr(text if len(text) <= 80 else text[:77] + "...")
