"""The root of all errors of Nimbus, and those that the pure core raises."""

from __future__ import annotations


class NimbusError(Exception):
    """Something that a user or an operator can act on. Each leaf has a stable `code`."""

    code = "nimbus"
    retryable = False
    exit_code = 70
    """What the command line exits with; docs/cli.md has the table."""


class InvalidTransitionError(NimbusError):
    """The core was asked for a step that its state does not allow: a defect, never a user's fault."""

    code = "invalid_transition"


class RefusedError(NimbusError):
    """A command cannot be done as things stand. Nothing was changed."""

    code = "refused"
    exit_code = 4

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
