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


class RecordTooLargeError(NimbusError):
    """A record is larger than the store takes; sent all the same, it would cost us the connection."""

    code = "record_too_large"
    exit_code = 4

    def __init__(self, what: str, size_bytes: int, most_bytes: int) -> None:
        super().__init__(
            f"{what} would have {size_bytes} bytes, and a record has at most {most_bytes}: nothing was "
            "written. Put what is large (parameters, arguments) into a file, or many tasks into several "
            "pipelines."
        )


class RefusedError(NimbusError):
    """A command cannot be done as things stand. Nothing was changed."""

    code = "refused"
    exit_code = 4

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
