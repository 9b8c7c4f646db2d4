"""The root of all errors of Nimbus, and those that the pure core raises."""

from __future__ import annotations


class NimbusError(Exception):
    """An error that a user or an operator can act on. Each leaf has a stable `code`."""

    code = "nimbus"
    retryable = False
    exit_code = 70
    """Exit code of the command line; docs/cli.md has the table."""


class InvalidTransitionError(NimbusError):
    """A step that the current state does not allow: a defect in Nimbus, never a user's mistake."""

    code = "invalid_transition"


class RecordTooLargeError(NimbusError):
    """A record is larger than the store accepts. Sending it would make ZooKeeper close the connection."""

    code = "record_too_large"
    exit_code = 4

    def __init__(self, what: str, size_bytes: int, most_bytes: int) -> None:
        super().__init__(
            f"{what} would have {size_bytes} bytes, and a record has at most {most_bytes}: nothing was "
            "written. Put large values (parameters, arguments) into a file, or many tasks into several "
            "pipelines."
        )


class RefusedError(NimbusError):
    """A command cannot be carried out in the current state. Nothing was changed."""

    code = "refused"
    exit_code = 4

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
